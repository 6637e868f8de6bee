"""Broker properties for the broker itself: its ID, listeners, sockets and limits."""

from __future__ import annotations

from ottla.base.config.aliases import (
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
from ottla.base.config.definition import INT_MAX, KIB, MIB, MINUTE_MS, SECOND_MS, ConfigKey
from ottla.base.config.validator import AtLeast, HostLimits, NonEmpty, one_of

DEFAULT_LISTENER = "PLAINTEXT://127.0.0.1:9092"
"""Default listener. Only clients on the same machine can connect to it."""

DEFAULT_INTER_BROKER_PROTOCOL = "PLAINTEXT"

NODE_KEYS = [
    ConfigKey("node.id", INT, 1, "Broker ID, unique within the cluster.", AtLeast(0), HIGH),
    ConfigKey("broker.id", INT, -1, "Former name of node.id.", None, HIGH),
    ConfigKey("broker.rack", STRING, None, "Rack or availability zone of this broker."),
    ConfigKey(
        "num.partitions",
        INT,
        1,
        "Default number of partitions of a new topic.",
        AtLeast(1),
    ),
    ConfigKey(
        "default.replication.factor",
        INT,
        1,
        "Default replication factor of a new topic.",
    ),
    ConfigKey(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        "Whether a topic is created when a client first requests its metadata.",
        None,
        HIGH,
    ),
    ConfigKey("delete.topic.enable", BOOLEAN, True, "Whether topics can be deleted.", None, HIGH),
    ConfigKey(
        "background.threads",
        INT,
        10,
        "Number of threads for blocking work outside the event loop, such as disk access.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.io.threads",
        INT,
        8,
        "No effect: one event loop serves all requests of a broker.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "num.network.threads",
        INT,
        3,
        "No effect: one event loop serves all requests of a broker.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "controlled.shutdown.enable",
        BOOLEAN,
        True,
        "Whether the broker transfers leadership to other replicas before it stops.",
    ),
    ConfigKey(
        "controlled.shutdown.timeout.ms",
        INT,
        15 * SECOND_MS,
        "Maximum time that a stopping broker waits for other replicas to take over leadership, "
        "in milliseconds; at most zookeeper.session.timeout.ms if ZooKeeper does not respond. "
        "The broker then stops within 10 seconds plus the time to flush its logs.",
        AtLeast(0),
    ),
    ConfigKey(
        "request.timeout.ms",
        INT,
        30 * SECOND_MS,
        "Upper limit for add.partitions.to.txn.retry.backoff.max.ms, in milliseconds.",
        None,
        HIGH,
    ),
]

LISTENER_KEYS = [
    ConfigKey(
        "listeners",
        LIST,
        [DEFAULT_LISTENER],
        "Addresses on which the broker listens, as a comma-separated list of NAME://host:port. "
        "An empty host binds to all interfaces; port 0 binds to any free port.",
        NonEmpty(),
        HIGH,
    ),
    ConfigKey(
        "advertised.listeners",
        LIST,
        None,
        "Addresses that clients connect to, as published in the cluster's metadata. If not set, "
        "the value of listeners applies.",
        NonEmpty(),
        HIGH,
    ),
    ConfigKey(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Map from listener names to security protocols: PLAINTEXT or SSL.",
        None,
        LOW,
    ),
    ConfigKey(
        "inter.broker.listener.name",
        STRING,
        None,
        "Name of the listener for communication between brokers. By default, it is the one with "
        "the protocol in security.inter.broker.protocol.",
    ),
    ConfigKey(
        "security.inter.broker.protocol",
        STRING,
        DEFAULT_INTER_BROKER_PROTOCOL,
        "Security protocol for communication between brokers, unless inter.broker.listener.name "
        "is set. It must be the protocol of a listener.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
]

SOCKET_KEYS = [
    ConfigKey(
        "socket.send.buffer.bytes",
        INT,
        100 * KIB,
        "Size of a socket's send buffer (SO_SNDBUF), in bytes; -1 for the operating system's "
        "default.",
        None,
        HIGH,
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        INT,
        100 * KIB,
        "Size of a socket's receive buffer (SO_RCVBUF), in bytes; -1 for the operating system's "
        "default.",
        None,
        HIGH,
    ),
    ConfigKey(
        "socket.request.max.bytes",
        INT,
        100 * MIB,
        "Maximum size of a request, in bytes. The broker closes a connection that sends a larger "
        "one.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        INT,
        50,
        "Maximum number of pending connections on a listening socket.",
        AtLeast(1),
    ),
    ConfigKey(
        "max.connections",
        INT,
        INT_MAX,
        "Maximum number of connections to the broker, or with the prefix of a listener, to that "
        "listener. The broker-wide limit does not stop connections to the listener for brokers.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip",
        INT,
        INT_MAX,
        "Maximum number of connections from one IP address.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Exceptions to max.connections.per.ip, as a comma-separated list of host:number.",
        HostLimits(),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "max.connection.creation.rate",
        INT,
        INT_MAX,
        "Maximum number of new connections per second to the broker, or with the prefix of a "
        "listener, to that listener. The broker-wide limit does not stop connections to the "
        "listener for brokers.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "connections.max.idle.ms",
        LONG,
        10 * MINUTE_MS,
        "Time after which an idle connection is closed, in milliseconds; a negative value for no "
        "limit.",
    ),
]

REQUEST_KEYS = [
    ConfigKey(
        "queued.max.requests",
        INT,
        500,
        "No effect: requests wait in their connections, and queued.max.request.bytes limits "
        "their size.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "queued.max.request.bytes",
        LONG,
        -1,
        "Maximum number of bytes of queued requests before the broker stops reading; -1 for no "
        "limit.",
    ),
    ConfigKey(
        "fetch.max.bytes",
        INT,
        55 * MIB,
        "Maximum size of a fetch response, in bytes. The first batch is returned even if it is "
        "larger.",
        AtLeast(1024),
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        "Maximum number of incremental fetch sessions in the cache.",
        AtLeast(0),
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        INT,
        2000,
        "Maximum number of partitions in a DescribeTopicPartitions response.",
        AtLeast(1),
    ),
]

SERVER_KEYS = [*NODE_KEYS, *LISTENER_KEYS, *SOCKET_KEYS, *REQUEST_KEYS]
