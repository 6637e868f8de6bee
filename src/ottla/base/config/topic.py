"""The effective configuration of a topic.

A property has the topic's own override, or else the broker's default: the first of the property's
synonyms that has a value, converted to the unit of the topic property. For example, `retention.ms`
defaults to `log.retention.ms`, then `log.retention.minutes`, then `log.retention.hours`.

The log and the request path use `TopicConfig`. It is immutable, and is parsed only when a topic is
created, loaded or changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.base.config.definition import (
    DAY_MS,
    HOUR_MS,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    ConfigError,
    ConfigKey,
)
from ottla.base.config.topic_table import (
    COMPACT,
    CREATE_TIME,
    DELETE,
    LOG_APPEND_TIME,
    MAX_MESSAGE_BYTES,
    TOPIC,
)
from ottla.base.config.validator import Value
from ottla.base.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.base.config.broker import BrokerConfig

__all__ = [
    "COMPACT",
    "CREATE_TIME",
    "DELETE",
    "LOG_APPEND_TIME",
    "TOPIC",
    "TopicConfig",
    "topic_config",
    "topic_defaults",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective values of a topic. Each field is the property of that name.

    Defaults are Kafka's. If `internal.segment.bytes` is set, `segment_bytes` has its value.
    """

    cleanup_policy: frozenset[str] = frozenset({DELETE})
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = MINUTE_MS
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = MAX_MESSAGE_BYTES
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = CREATE_TIME
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1024 * MIB
    segment_index_bytes: int = 10 * MIB
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    unclean_leader_election_enable: bool = False
    internal_segment_bytes: int | None = None

    @property
    def compact(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return DELETE in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == LOG_APPEND_TIME

    @property
    def max_segment_ms(self) -> int:
        """Age at which a segment is rolled, at most the maximum compaction lag if compacted."""
        if self.compact:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return the effective configuration of a topic.

    Args:
        broker: Configuration of the broker, which provides defaults.
        overrides: Properties that are set on the topic.

    Raises:
        KafkaError: INVALID_CONFIG if a property is unknown, invalid, or contradicts another.
    """
    parsed = TOPIC.parse(overrides)
    if parsed.unknown:
        raise _invalid(_unknown_name(parsed.unknown[0]))
    if parsed.errors:
        raise _invalid(str(parsed.errors[0]))
    values = {**topic_defaults(broker), **parsed.values}
    _check_together(values)
    return TopicConfig(**_attributes(values))


def topic_defaults(broker: BrokerConfig) -> dict[str, Value]:
    """Return the value of every topic property on this broker for a topic without overrides."""
    return {key.name: _broker_default(broker, key) for key in TOPIC}


def _broker_default(broker: BrokerConfig, key: ConfigKey) -> Value:
    for synonym in key.synonyms:
        value = broker.value(synonym.name)
        if value is not None:
            return synonym.convert(value)
    return key.default


def _check_together(values: Mapping[str, Any]) -> None:
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        allowed = f"must not exceed max.compaction.lag.ms ({values['max.compaction.lag.ms']})"
        raise _invalid(
            str(ConfigError("min.compaction.lag.ms", values["min.compaction.lag.ms"], allowed))
        )
    if values["remote.storage.enable"]:
        allowed = "must be false, because remote storage is not in this release"
        raise _invalid(str(ConfigError("remote.storage.enable", "true", allowed)))


def _attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    attributes = {TOPIC[name].attribute: value for name, value in values.items()}
    attributes["cleanup_policy"] = frozenset(attributes["cleanup_policy"])
    for name in ("leader", "follower"):
        replicas = f"{name}_replication_throttled_replicas"
        attributes[replicas] = tuple(attributes[replicas])
    if attributes["internal_segment_bytes"] is not None:
        attributes["segment_bytes"] = attributes["internal_segment_bytes"]
    return attributes


def _unknown_name(name: str) -> str:
    nearest = TOPIC.nearest(name)
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"Unknown topic config name: {name}{hint}"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
