"""Properties that can be set on a consumer group, with defaults from the broker.

Each value must lie between the broker's `group.consumer.min.…` and `group.consumer.max.…`, and the
heartbeat interval must be shorter than the session timeout.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.definition import ConfigKey, ConfigTable, ConfigType, Synonym
from ottla.base.config.validator import AtLeast
from ottla.base.errors import ErrorCode, KafkaError

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


def _key(name: str, default: int, doc: str, least: int = 1) -> ConfigKey:
    synonym = Synonym(f"group.{name}")
    return ConfigKey(name, ConfigType.INT, default, doc, AtLeast(least), synonyms=(synonym,))


GROUP = ConfigTable(
    "group",
    [
        _key(
            SESSION_TIMEOUT,
            45_000,
            "Time after which a member that sends no heartbeat is removed from the group, in "
            "milliseconds.",
        ),
        _key(
            HEARTBEAT_INTERVAL,
            5_000,
            "Interval between heartbeats of a member, in milliseconds.",
        ),
        _key(
            ASSIGNMENT_INTERVAL,
            1_000,
            "Minimum interval between two target assignments of the group, in milliseconds.",
            least=0,
        ),
    ],
)


def group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, int]:
    """Return the parsed values that are set on a group.

    Raises:
        KafkaError: INVALID_CONFIG if the values contradict each other or the broker's limits.
    """
    values = {name: int(GROUP[name].parse(text)) for name, text in overrides.items()}  # type: ignore[arg-type]
    for name, value in values.items():
        kind, _, rest = name.partition(".")
        for bound, is_kept in (("min", int.__ge__), ("max", int.__le__)):
            limit = f"group.{kind}.{bound}.{rest}"
            if not is_kept(value, broker_value(broker, limit)):
                relation = "at least" if bound == "min" else "at most"
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"{name} must be {relation} {limit}, which is {broker_value(broker, limit)}.",
                )
    session_ms = values.get(SESSION_TIMEOUT, broker.group_consumer_session_timeout_ms)
    heartbeat_ms = values.get(HEARTBEAT_INTERVAL, broker.group_consumer_heartbeat_interval_ms)
    if heartbeat_ms >= session_ms:
        message = f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    return values


def broker_value(broker: BrokerConfig, name: str) -> int:
    value = getattr(broker, name.replace(".", "_"))
    assert isinstance(value, int)
    return value
