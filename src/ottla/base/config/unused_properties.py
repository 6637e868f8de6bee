"""Broker properties of Kafka that this broker recognizes but does not use.

A server.properties file for Apache Kafka works unchanged, unless that would be misleading. An
unused property is of one of four kinds:

  refused       ignoring it would break something its owner relies on: the broker does not start
  not needed    it configures machinery that this broker does not have: logged at level INFO
  no effect     its feature is not in this release: logged at level WARNING
  shown         has no effect, logged at level INFO, but listed with its value in the broker's
                configuration

Names that end in a dot stand for all properties with that prefix.
"""

from __future__ import annotations

_ZOOKEEPER = "this ZooKeeper client setting is not in this release"
_POLICY = "policy classes are Java code, which this broker cannot load"

REFUSED = {
    "create.topic.policy.class.name": _POLICY,
    "alter.config.policy.class.name": _POLICY,
    "client.quota.callback.class": "quota callbacks are Java code, which this broker cannot load",
    "authorizer.class.name": "authorization is not in this release",
    "remote.log.storage.system.enable": "remote storage is not in this release",
}
"""Properties with which the broker does not start, and the reasons."""

HARMLESS_VALUES = {"authorizer.class.name": "", "remote.log.storage.system.enable": "false"}
"""Values with which a refused property is accepted, because they disable its feature."""

_NO_QUORUM = "Ottla does not use a KRaft controller quorum"

NOT_NEEDED = {
    "process.roles": _NO_QUORUM,
    "controller.listener.names": _NO_QUORUM,
    "controller.quorum.": _NO_QUORUM,
    "controller.performance.": _NO_QUORUM,
    "controller.socket.timeout.ms": _NO_QUORUM,
    "broker.heartbeat.interval.ms": _NO_QUORUM,
    "broker.session.timeout.ms": _NO_QUORUM,
    "initial.broker.registration.timeout.ms": _NO_QUORUM,
    "early.start.listeners": _NO_QUORUM,
    "server.max.startup.time.ms": _NO_QUORUM,
    "unclean.leader.election.interval.ms": _NO_QUORUM,
    "sasl.mechanism.controller.protocol": _NO_QUORUM,
    "metadata.": _NO_QUORUM,
    "internal.metadata.": _NO_QUORUM,
}

_PLAINTEXT = "only PLAINTEXT listeners are in this release"
_REMOTE = "remote storage is not in this release"
_METRICS = "metrics reporters are Java code, which this broker cannot load"
_WAITING = "the purgatory removes each delayed request as soon as it completes"
_LOOP = "one event loop serves all requests of a broker"
_GONE = "Kafka 4 removed it"

NO_EFFECT = {
    "ssl.": _PLAINTEXT,
    "sasl.": _PLAINTEXT,
    "security.providers": _PLAINTEXT,
    "delegation.token.": _PLAINTEXT,
    "principal.builder.class": _PLAINTEXT,
    "connection.failed.authentication.delay.ms": _PLAINTEXT,
    "connections.max.reauth.ms": _PLAINTEXT,
    "listener.name.": "all listeners share the broker's properties",
    "super.users": "authorization is not in this release",
    "allow.everyone.if.no.acl.found": "authorization is not in this release",
    "config.providers": "config providers are Java code, which this broker cannot load",
    "remote.": _REMOTE,
    "rlmm.config.": _REMOTE,
    "rsm.config.": _REMOTE,
    "follower.fetch.last.tiered.offset.enable": _REMOTE,
    "kafka.metrics.": _METRICS,
    "metric.reporters": _METRICS,
    "metrics.": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "telemetry.max.bytes": "client telemetry is not collected",
    "fetch.purgatory.purge.interval.requests": _WAITING,
    "producer.purgatory.purge.interval.requests": _WAITING,
    "delete.records.purgatory.purge.interval.requests": _WAITING,
    "share.fetch.purgatory.purge.interval.requests": _WAITING,
    "group.coordinator.background.threads": _LOOP,
    "share.coordinator.threads": _LOOP,
    "group.share.persister.class.name": "share groups are not in this release",
    "group.streams.": "Kafka Streams groups are not in this release",
    "alter.log.dirs.replication.quota.": "partitions do not move between log directories",
    "num.replica.alter.log.dirs.threads": "partitions do not move between log directories",
    "cordoned.log.dirs": "log directories cannot be cordoned in this release",
    "socket.connection.setup.timeout.": "brokers use a fixed connection setup timeout",
    "unstable.": "Ottla has no unstable API or feature versions",
    "zookeeper.": _ZOOKEEPER,
    "broker.id.generation.enable": _GONE,
    "reserved.broker.max.id": _GONE,
    "inter.broker.protocol.version": _GONE,
    "log.message.format.version": _GONE,
    "log.message.downconversion.enable": _GONE,
    "log.message.timestamp.difference.max.ms": _GONE,
    "control.plane.listener.name": _GONE,
    "controlled.shutdown.max.retries": _GONE,
    "controlled.shutdown.retry.backoff.ms": _GONE,
    "leader.imbalance.per.broker.percentage": _GONE,
    "password.encoder.": _GONE,
}

SHOWN = {
    "num.io.threads": _LOOP,
    "num.network.threads": _LOOP,
    "group.coordinator.threads": _LOOP,
    "queued.max.requests": "requests wait in their connections, and queued.max.request.bytes "
    "limits their size",
}


def refusal(name: str, text: str) -> str | None:
    """Return an error message if a property is refused, or None."""
    reason = REFUSED.get(name)
    if reason is None or text.strip().lower() == HARMLESS_VALUES.get(name):
        return None
    return f"{name} cannot be used: {reason}. Remove it from the configuration."


def not_needed(name: str) -> str | None:
    """Return why this broker does not need a property, or None."""
    return _find(NOT_NEEDED, name)


def shown_only(name: str) -> str | None:
    """Return why a property in the broker's table has no effect, or None."""
    return SHOWN.get(name)


def no_effect(name: str) -> str | None:
    """Return why a known property that is not in the broker's table has no effect, or None."""
    if name in REFUSED:
        return REFUSED[name]
    return _find(NO_EFFECT, name)


def _find(reasons: dict[str, str], name: str) -> str | None:
    if name in reasons:
        return reasons[name]
    for prefix, reason in reasons.items():
        if prefix.endswith(".") and name.startswith(prefix):
            return reason
    return None
