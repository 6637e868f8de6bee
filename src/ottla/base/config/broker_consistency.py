"""Rules that involve the values of several broker properties."""

from __future__ import annotations

from collections.abc import Container

from ottla.base.config.broker_attributes import BrokerAttributes
from ottla.base.config.broker_sasl_table import LOGIN_MECHANISMS
from ottla.base.config.definition import ConfigError
from ottla.base.config.secrets import HIDDEN
from ottla.base.config.tls_settings import listener_prefix

_RANGES = [
    ("group.consumer", "session.timeout.ms"),
    ("group.consumer", "heartbeat.interval.ms"),
    ("group.consumer", "assignment.interval.ms"),
    ("group.share", "session.timeout.ms"),
    ("group.share", "heartbeat.interval.ms"),
    ("group.share", "assignment.interval.ms"),
    ("group.share", "delivery.count.limit"),
    ("group.share", "record.lock.duration.ms"),
    ("group.share", "partition.max.record.locks"),
]
"""Prefix and property for which prefix.min.property ≤ prefix.property ≤ prefix.max.property."""


def check_together(config: BrokerAttributes, explicit: Container[str]) -> None:
    """Check that the values of a broker's properties do not contradict each other.

    Args:
        config: The values.
        explicit: Names of the properties that were set.

    Raises:
        ConfigError: The first contradiction.
    """
    _check_retention(config)
    _check_limits(config)
    _check_listener_names(config, explicit)
    _check_broker_login(config)
    for prefix, name in _RANGES:
        minimum = _number(config, f"{prefix}.min.{name}")
        maximum = _number(config, f"{prefix}.max.{name}")
        value = _number(config, f"{prefix}.{name}")
        if not minimum <= value <= maximum:
            allowed = f"must be between its minimum ({minimum}) and its maximum ({maximum})"
            raise ConfigError(f"{prefix}.{name}", value, allowed)
    for prefix in ("group.consumer", "group.share"):
        heartbeat = _number(config, f"{prefix}.heartbeat.interval.ms")
        if heartbeat >= _number(config, f"{prefix}.session.timeout.ms"):
            allowed = f"must be less than {prefix}.session.timeout.ms"
            raise ConfigError(f"{prefix}.heartbeat.interval.ms", heartbeat, allowed)


def _check_retention(config: BrokerAttributes) -> None:
    if config.log_retention_ms < -1 or config.log_retention_ms == 0:
        allowed = "must be at least 1, or -1 for no limit"
        raise ConfigError("log.retention.ms", config.log_retention_ms, allowed)
    minimum = config.log_cleaner_min_compaction_lag_ms
    if minimum > config.log_cleaner_max_compaction_lag_ms:
        allowed = "must not exceed log.cleaner.max.compaction.lag.ms"
        raise ConfigError("log.cleaner.min.compaction.lag.ms", minimum, allowed)


def _check_limits(config: BrokerAttributes) -> None:
    queued = config.queued_max_request_bytes
    if 0 < queued < config.socket_request_max_bytes:
        allowed = "must be -1, or at least socket.request.max.bytes"
        raise ConfigError("queued.max.request.bytes", queued, allowed)
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        allowed = "must not exceed replica.lag.time.max.ms"
        raise ConfigError("replica.fetch.wait.max.ms", config.replica_fetch_wait_max_ms, allowed)


def _check_listener_names(config: BrokerAttributes, explicit: Container[str]) -> None:
    name = config.inter_broker_listener_name
    names = [listener.name for listener in config.listeners]
    if name is not None and name.upper() not in names:
        allowed = f"must be the name of a listener ({', '.join(names)})"
        raise ConfigError("inter.broker.listener.name", name, allowed)
    advertised = [listener.name for listener in config.advertised_listeners]
    if config.inter_broker_listener not in advertised:
        allowed = (
            f"must contain the listener for brokers, {config.inter_broker_listener}: the others "
            "connect to it"
        )
        raise ConfigError("advertised.listeners", ",".join(advertised), allowed)
    protocol = config.security_inter_broker_protocol
    if "security.inter.broker.protocol" not in explicit:
        return
    if name is not None:
        allowed = "must not be set together with inter.broker.listener.name"
        raise ConfigError("security.inter.broker.protocol", protocol, allowed)
    if protocol not in (each.name for each in config.listener_protocols.values()):
        allowed = "must be the security protocol of a listener"
        raise ConfigError("security.inter.broker.protocol", protocol, allowed)


def _check_broker_login(config: BrokerAttributes) -> None:
    """Check that the brokers of a cluster have credentials for each other."""
    listener = config.inter_broker_listener
    settings = config.sasl_settings.get(listener)
    if settings is None or not config.zookeeper_connect:
        return
    mechanism = settings.inter_broker_mechanism
    if mechanism in settings.names and mechanism not in LOGIN_MECHANISMS:
        allowed = f"must be one of {', '.join(LOGIN_MECHANISMS)}, with which brokers can log in"
        raise ConfigError("sasl.mechanism.inter.broker.protocol", mechanism, allowed)
    if mechanism not in settings.names:
        allowed = (
            f"must be one of the mechanisms that the listener for brokers, {listener}, accepts "
            f"({', '.join(settings.names)})"
        )
        raise ConfigError("sasl.mechanism.inter.broker.protocol", mechanism, allowed)
    module = settings.inter_broker_login()
    if module is None or not module.username or not module.password:
        allowed = (
            'must have username="…" and password="…", with which the brokers log in to each other'
        )
        name = f"{listener_prefix(listener)}{mechanism.lower()}.sasl.jaas.config"
        raise ConfigError(name, HIDDEN, allowed)


def _number(config: BrokerAttributes, name: str) -> int:
    value = getattr(config, name.replace(".", "_"))
    assert isinstance(value, int)
    return value
