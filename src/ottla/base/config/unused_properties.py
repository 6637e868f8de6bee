"""Broker properties of Kafka that this broker recognizes but does not use.

A server.properties file for Apache Kafka works unchanged, unless that would be misleading. An
unused property is of one of five kinds:

  refused       ignoring it would break something its owner relies on: the broker does not start
  not needed    it configures machinery that this broker does not have: logged at level INFO
  no effect     its feature is not in this release: logged at level WARNING
  shown         it tunes machinery that this broker does not have: logged at level INFO
  not released  its feature is not in this release: logged at level WARNING

The broker's configuration lists properties of the last two kinds with their values, since they are
in its table. Their descriptions there end with the same reason.

Names that end in a dot stand for all properties with that prefix.
"""

from __future__ import annotations

from collections.abc import Iterable

_ZOOKEEPER = "this ZooKeeper client setting is not in this release"
_REVOCATION = "certificates are not checked for revocation in this release"
_POLICY = "policy classes are Java code, which this broker cannot load"

REFUSED = {
    "create.topic.policy.class.name": _POLICY,
    "alter.config.policy.class.name": _POLICY,
    "client.quota.callback.class": "quota callbacks are Java code, which this broker cannot load",
    "ssl.engine.factory.class": "TLS engines are Java code, which this broker cannot load",
    "remote.log.storage.system.enable": "remote storage is not in this release",
    "zookeeper.ssl.crl.enable": _REVOCATION,
    "zookeeper.ssl.ocsp.enable": _REVOCATION,
}
"""Properties with which the broker does not start, and the reasons."""

HARMLESS_VALUES = {
    "remote.log.storage.system.enable": "false",
    "zookeeper.ssl.crl.enable": "false",
    "zookeeper.ssl.ocsp.enable": "false",
}
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

_KERBEROS = "Ottla does not support Kerberos (GSSAPI)"
_OBTAIN = "it configures how clients obtain tokens, which brokers do not"
_LOGIN = "it configures Java's login of connections between brokers"
_JAVA_TLS = "it configures Java's implementation of TLS"
_REMOTE = "remote storage is not in this release"
_METRICS = "metrics reporters are Java code, which this broker cannot load"
_WAITING = "the purgatory removes each delayed request as soon as it completes"
_LOOP = "one event loop serves all requests of a broker"
_GONE = "Kafka 4 removed it"
_SHARE = "share groups are not in this release"
_STREAMS = "Kafka Streams groups are not in this release"
_QUOTAS = "quotas are not in this release"
_TWO_PHASE = "two-phase commits are not in this release"
_PREALLOCATE = "segment files grow as records are appended"

NO_EFFECT = {
    "ssl.": _JAVA_TLS,
    "sasl.kerberos.": _KERBEROS,
    "sasl.oauthbearer.": _OBTAIN,
    "sasl.login.": _LOGIN,
    "sasl.client.callback.handler.class": _LOGIN,
    "security.providers": _JAVA_TLS,
    "delegation.token.master.key": "Kafka 4 removed it; set delegation.token.secret.key",
    "listener.name.": "of the properties of a listener, only those for TLS and SASL are in this "
    "release",
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
    "group.share.persister.class.name": _SHARE,
    "group.streams.": _STREAMS,
    "alter.log.dirs.replication.quota.": "partitions do not move between log directories",
    "num.replica.alter.log.dirs.threads": "partitions do not move between log directories",
    "cordoned.log.dirs": "log directories cannot be cordoned in this release",
    "socket.connection.setup.timeout.": "a broker waits 5 seconds for a connection to another "
    "broker",
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
    "num.recovery.threads.per.data.dir": "one thread recovers the logs of a broker",
    "num.replica.fetchers": "a follower uses one fetcher for each leader",
    "replica.socket.receive.buffer.bytes": "the operating system chooses the receive buffer of a "
    "follower's connections",
    "replication.quota.window.num": "a replication quota accumulates for one second",
    "replication.quota.window.size.seconds": "a replication quota accumulates for one second",
    "zookeeper.clientCnxnSocket": "the ZooKeeper client of this broker is not a Java program",
    "log.dir.failure.timeout.ms": "brokers do not report failed log directories to the controller",
    "log.initial.task.delay.ms": "each background task first runs after its own interval",
    "log.flush.start.offset.checkpoint.interval.ms": "log start offsets are checkpointed together "
    "with recovery points, see log.flush.offset.checkpoint.interval.ms",
    "log.preallocate": _PREALLOCATE,
    "group.coordinator.append.linger.ms": "the group coordinator chooses its own batching",
    "group.coordinator.cached.buffer.max.bytes": "the group coordinator does not cache its append "
    "buffers",
    "group.consumer.regex.refresh.interval.ms": "regular expression subscriptions are matched "
    "again when topics or ACLs change",
}

NOT_RELEASED = {
    "group.share.": _SHARE,
    "share.coordinator.append.linger.ms": _SHARE,
    "share.coordinator.cached.buffer.max.bytes": _SHARE,
    "share.coordinator.cold.partition.snapshot.interval.ms": _SHARE,
    "share.coordinator.load.buffer.size": _SHARE,
    "share.coordinator.snapshot.update.records.per.snapshot": _SHARE,
    "share.coordinator.state.topic.compression.codec": _SHARE,
    "share.coordinator.state.topic.prune.interval.ms": _SHARE,
    "share.coordinator.write.timeout.ms": _SHARE,
    "quota.window.": _QUOTAS,
    "controller.quota.window.": _QUOTAS,
    "log.local.retention.": _REMOTE,
    "transaction.two.phase.commit.enable": _TWO_PHASE,
}

UNUSED_ITEMS = {
    "group.coordinator.rebalance.protocols": {"share": _SHARE, "streams": _STREAMS},
}
"""Items of list properties that have no effect, and the reasons."""

UNUSED_BY_TOPICS = {
    "local.retention.bytes": _REMOTE,
    "local.retention.ms": _REMOTE,
    "remote.log.copy.disable": _REMOTE,
    "remote.log.delete.on.disable": _REMOTE,
    "preallocate": _PREALLOCATE,
}
"""Topic properties that have no effect, and the reasons. Only their descriptions say so."""


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
    """Return why this broker has nothing that a property in its table could tune, or None."""
    return SHOWN.get(name)


def not_released(name: str) -> str | None:
    """Return which feature of a property in the broker's table is not in this release, or None."""
    return _find(NOT_RELEASED, name)


def unused_items(name: str, items: Iterable[str]) -> dict[str, str]:
    """Return the items of a list property that have no effect, each with the reason."""
    reasons = UNUSED_ITEMS.get(name, {})
    return {item: reasons[item] for item in items if item in reasons}


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
