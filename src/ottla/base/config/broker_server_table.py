"""Broker properties for the broker itself: its ID, listeners, sockets and limits."""

from __future__ import annotations

from ottla.base.config.definition import INT_MAX, KIB, MIB, MINUTE_MS, SECOND_MS, ConfigKey
from ottla.base.config.validator import AtLeast, HostLimits, NonEmpty, one_of
from ottla.base.config.vocabulary import (
    BOOLEAN,
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    STRING,
)

DEFAULT_LISTENER = "PLAINTEXT://127.0.0.1:9092"
"""Default listener. Only clients on the same machine can connect to it."""

NODE_KEYS = [
    ConfigKey("node.id", INT, 1, "The broker's id; no other may have it.", AtLeast(0), HIGH),
    ConfigKey("broker.id", INT, -1, "The old name of node.id.", None, HIGH),
    ConfigKey("broker.rack", STRING, None, "The rack or zone where this broker stands."),
    ConfigKey(
        "num.partitions",
        INT,
        1,
        "How many partitions a topic gets when its creator does not say.",
        AtLeast(1),
    ),
    ConfigKey(
        "default.replication.factor",
        INT,
        1,
        "How many replicas a topic gets when its creator does not say.",
    ),
    ConfigKey(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        "Whether a topic is created when a client first asks for it.",
        None,
        HIGH,
    ),
    ConfigKey("delete.topic.enable", BOOLEAN, True, "Whether topics can be deleted.", None, HIGH),
    ConfigKey(
        "background.threads",
        INT,
        10,
        "How many threads do work that would stall the event loop.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.io.threads",
        INT,
        8,
        "Without effect: one event loop serves all requests of a broker.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.network.threads",
        INT,
        3,
        "Without effect: one event loop serves all connections of a broker.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "controlled.shutdown.enable",
        BOOLEAN,
        True,
        "Whether a stopping broker first hands its leaderships to others.",
    ),
    ConfigKey(
        "controlled.shutdown.timeout.ms",
        INT,
        15 * SECOND_MS,
        "Longest time that a stopping broker waits for others to take over its leaderships. While "
        "ZooKeeper does not answer, it waits no longer than zookeeper.session.timeout.ms. It then "
        "ends within 10 seconds, plus the time the disks need to sync the logs.",
        AtLeast(0),
    ),
    ConfigKey(
        "request.timeout.ms",
        INT,
        30 * SECOND_MS,
        "How long this broker waits for the answer to a request of its own.",
        None,
        HIGH,
    ),
]

LISTENER_KEYS = [
    ConfigKey(
        "listeners",
        LIST,
        [DEFAULT_LISTENER],
        "Where the broker listens: NAME://host:port, separated by commas. An empty host is every "
        "interface, port 0 any free port.",
        NonEmpty(),
        HIGH,
    ),
    ConfigKey(
        "advertised.listeners",
        LIST,
        None,
        "The addresses that clients are told to connect to; the listeners themselves if not set.",
        NonEmpty(),
        HIGH,
    ),
    ConfigKey(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name. Only PLAINTEXT listeners are in this "
        "release.",
        None,
        LOW,
    ),
    ConfigKey(
        "inter.broker.listener.name",
        STRING,
        None,
        "The listener over which brokers talk to each other.",
    ),
    ConfigKey(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "The security protocol between brokers.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
]

SOCKET_KEYS = [
    ConfigKey(
        "socket.send.buffer.bytes",
        INT,
        100 * KIB,
        "The SO_SNDBUF of sockets; -1 leaves it to the operating system.",
        None,
        HIGH,
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        INT,
        100 * KIB,
        "The SO_RCVBUF of sockets; -1 leaves it to the operating system.",
        None,
        HIGH,
    ),
    ConfigKey(
        "socket.request.max.bytes",
        INT,
        100 * MIB,
        "The largest request taken; a longer one closes its connection.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        INT,
        50,
        "How many connections may wait to be accepted.",
        AtLeast(1),
    ),
    ConfigKey(
        "max.connections",
        INT,
        INT_MAX,
        "How many connections the broker holds at most.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip",
        INT,
        INT_MAX,
        "How many connections one address may hold.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Exceptions to max.connections.per.ip, as host:number pairs.",
        HostLimits(),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connection.creation.rate",
        INT,
        INT_MAX,
        "How many connections are accepted per second.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "connections.max.idle.ms",
        LONG,
        10 * MINUTE_MS,
        "After how long without a request a connection is closed; negative is never.",
    ),
]

REQUEST_KEYS = [
    ConfigKey(
        "queued.max.requests",
        INT,
        500,
        "How many requests may wait before the broker stops reading.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "queued.max.request.bytes",
        LONG,
        -1,
        "How many bytes of requests may wait before the broker stops reading; -1 is without limit.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        INT,
        55 * MIB,
        "The most that one fetch answer carries, its first batch apart.",
        AtLeast(1024),
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        "How many incremental fetch sessions are remembered.",
        AtLeast(0),
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        INT,
        2000,
        "The most partitions in one answer to DescribeTopicPartitions.",
        AtLeast(1),
    ),
]

SERVER_KEYS = [*NODE_KEYS, *LISTENER_KEYS, *SOCKET_KEYS, *REQUEST_KEYS]
