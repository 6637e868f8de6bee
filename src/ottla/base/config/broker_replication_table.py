"""Broker properties for replication, leader elections and quotas."""

from __future__ import annotations

from ottla.base.config.aliases import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LONG,
    LOW,
    MEDIUM,
    STRING,
)
from ottla.base.config.definition import KIB, LONG_MAX, MIB, SECOND_MS, ConfigKey
from ottla.base.config.validator import AtLeast

REPLICA_KEYS = [
    ConfigKey(
        "zookeeper.connect",
        STRING,
        None,
        "ZooKeeper ensemble of the cluster, as host:port,host:port/root. If not set, the broker "
        "runs alone and stores its own metadata.",
        None,
        HIGH,
    ),
    ConfigKey(
        "zookeeper.session.timeout.ms",
        INT,
        6 * SECOND_MS,
        "Timeout of the broker's ZooKeeper session, in milliseconds.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "zookeeper.connection.timeout.ms",
        INT,
        18 * SECOND_MS,
        "Maximum time that a starting broker waits to connect to ZooKeeper, in milliseconds.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "broker.lease.ms",
        INT,
        2 * SECOND_MS,
        "Time that a broker may lead partitions after it last renewed its lease in ZooKeeper, in "
        "milliseconds. The controller replaces it as leader after another quarter of this time. "
        "Specific to Ottla.",
        AtLeast(100),
        HIGH,
    ),
    ConfigKey(
        "min.insync.replicas",
        INT,
        1,
        "Minimum number of in-sync replicas for a produce request with acks=all to succeed.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Whether a replica outside the ISR may be elected leader as a last resort. Acknowledged "
        "records may be lost.",
        None,
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        True,
        "Whether the controller automatically moves leadership back to the preferred replicas.",
        None,
        HIGH,
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        LONG,
        300,
        "Time that the controller waits before it moves leadership back to the preferred "
        "replicas, in seconds.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "replica.lag.time.max.ms",
        LONG,
        30 * SECOND_MS,
        "Time after which a follower that has not caught up to the leader's log end offset is "
        "removed from the ISR, in milliseconds.",
        None,
        HIGH,
    ),
    ConfigKey(
        "replica.socket.timeout.ms",
        INT,
        30 * SECOND_MS,
        "Time that a follower waits for its leader's response, in milliseconds. It is added to "
        "replica.fetch.wait.max.ms for fetch requests.",
        None,
        HIGH,
    ),
    ConfigKey(
        "replica.socket.receive.buffer.bytes",
        INT,
        64 * KIB,
        "No effect: the operating system chooses the receive buffer of a follower's connections.",
        None,
        HIGH,
    ),
    ConfigKey(
        "replica.fetch.max.bytes",
        INT,
        MIB,
        "Maximum number of bytes that a follower fetches from one partition per request.",
        AtLeast(0),
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes",
        INT,
        10 * MIB,
        "Maximum size of a response to a follower's fetch request, in bytes.",
        AtLeast(0),
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms",
        INT,
        500,
        "Maximum time that a leader delays a follower's fetch request, in milliseconds.",
        None,
        HIGH,
    ),
    ConfigKey(
        "replica.fetch.min.bytes",
        INT,
        1,
        "Minimum number of bytes in a response to a follower's fetch request, unless "
        "replica.fetch.wait.max.ms expires first.",
        None,
        HIGH,
    ),
    ConfigKey(
        "replica.fetch.backoff.ms",
        INT,
        SECOND_MS,
        "Time that a follower waits after a failed fetch before it retries, in milliseconds.",
        AtLeast(0),
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        5 * SECOND_MS,
        "Interval between updates of the high watermark checkpoints, in milliseconds.",
        None,
        HIGH,
    ),
    ConfigKey(
        "replica.selector.class",
        STRING,
        None,
        "Class that chooses the replica from which a consumer reads (KIP-392). If not set, "
        "consumers read from the leader.",
    ),
    ConfigKey(
        "num.replica.fetchers",
        INT,
        1,
        "No effect: a follower uses one fetcher for each leader.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
]

QUOTA_KEYS = [
    ConfigKey(
        "leader.replication.throttled.rate",
        LONG,
        LONG_MAX,
        "Maximum rate at which the leader sends to throttled replicas, in bytes per second.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
        internal=True,
    ),
    ConfigKey(
        "follower.replication.throttled.rate",
        LONG,
        LONG_MAX,
        "Maximum rate at which throttled replicas fetch, in bytes per second.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
        internal=True,
    ),
    ConfigKey(
        "quota.window.num",
        INT,
        11,
        "Number of windows over which the use of a client quota is measured.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "quota.window.size.seconds",
        INT,
        1,
        "Length of a window for client quotas, in seconds.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "replication.quota.window.num",
        INT,
        11,
        "Number of samples retained for replication quotas. No effect: a replication quota "
        "accumulates for one second.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "replication.quota.window.size.seconds",
        INT,
        1,
        "Length of a sample for replication quotas, in seconds. No effect: a replication quota "
        "accumulates for one second.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "controller.quota.window.num",
        INT,
        11,
        "Number of windows whose tokens a client can save for controller mutations.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "controller.quota.window.size.seconds",
        INT,
        1,
        "Length of a window for controller mutation quotas, in seconds.",
        AtLeast(1),
        LOW,
    ),
]

REPLICATION_KEYS = [*REPLICA_KEYS, *QUOTA_KEYS]
