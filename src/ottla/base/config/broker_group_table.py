"""Broker properties for consumer groups and their offsets."""

from __future__ import annotations

from ottla.base.config.definition import (
    INT_MAX,
    KIB,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    ConfigKey,
)
from ottla.base.config.topic_table import MAX_MESSAGE_BYTES
from ottla.base.config.validator import AtLeast, OneOf, each_one_of
from ottla.base.config.vocabulary import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    MEDIUM,
    SHORT,
    STRING,
)

CLASSIC_GROUP_KEYS = [
    ConfigKey(
        "group.min.session.timeout.ms",
        INT,
        6 * SECOND_MS,
        "The shortest session timeout that a member may ask for.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms",
        INT,
        30 * MINUTE_MS,
        "The longest session timeout that a member may ask for.",
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        INT,
        3 * SECOND_MS,
        "How long an empty group waits for more members before its first rebalance.",
    ),
    ConfigKey("group.max.size", INT, INT_MAX, "How many members a group may have.", AtLeast(1)),
]

COORDINATOR_KEYS = [
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        LIST,
        ["classic", "consumer", "streams"],
        "The group protocols that are served.",
        each_one_of(["consumer", "classic", "share", "streams"], empty=False),
    ),
    ConfigKey(
        "group.coordinator.threads",
        INT,
        4,
        "Without effect: one event loop serves all requests of a broker.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "group.coordinator.append.linger.ms",
        INT,
        -1,
        "How long the coordinator gathers records before it appends them; -1 decides by itself.",
        AtLeast(-1),
    ),
    ConfigKey(
        "group.coordinator.cached.buffer.max.bytes",
        INT,
        MAX_MESSAGE_BYTES,
        "How large a buffer the coordinator keeps for the next append.",
        AtLeast(512 * KIB),
        MEDIUM,
        CLUSTER_WIDE,
    ),
]

CONSUMER_GROUP_KEYS = [
    ConfigKey(
        "group.consumer.session.timeout.ms",
        INT,
        45 * SECOND_MS,
        "After how long without a heartbeat a member of a consumer group is removed.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.min.session.timeout.ms",
        INT,
        45 * SECOND_MS,
        "The shortest session timeout that a consumer group may be given.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.max.session.timeout.ms",
        INT,
        60 * SECOND_MS,
        "The longest session timeout that a consumer group may be given.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5 * SECOND_MS,
        "How often members of a consumer group send a heartbeat.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5 * SECOND_MS,
        "The shortest heartbeat interval that a consumer group may be given.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15 * SECOND_MS,
        "The longest heartbeat interval that a consumer group may be given.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.assignment.interval.ms",
        INT,
        SECOND_MS,
        "How long a new assignment of a consumer group waits for further changes.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        "The shortest assignment interval that a consumer group may be given.",
        AtLeast(0),
    ),
    ConfigKey(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15 * SECOND_MS,
        "The longest assignment interval that a consumer group may be given.",
        AtLeast(0),
    ),
    ConfigKey(
        "group.consumer.max.size",
        INT,
        INT_MAX,
        "How many members a consumer group may have.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.assignors",
        LIST,
        ["uniform", "range"],
        "The assignors on the broker's side, the default one first.",
        each_one_of(["uniform", "range"], empty=False),
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "Whether a classic group may become a consumer group, and back.",
        OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), ignore_case=True),
    ),
    ConfigKey(
        "group.consumer.regex.refresh.interval.ms",
        INT,
        10 * MINUTE_MS,
        "How often a subscription by pattern is matched against the topics again.",
        AtLeast(10 * SECOND_MS),
        internal=True,
    ),
]

OFFSET_KEYS = [
    ConfigKey(
        "offset.metadata.max.bytes",
        INT,
        4096,
        "How long the text beside a committed offset may be.",
        None,
        HIGH,
    ),
    ConfigKey(
        "offsets.commit.timeout.ms",
        INT,
        5 * SECOND_MS,
        "How long a commit waits for the replicas of the offsets topic.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.load.buffer.size",
        INT,
        5 * MIB,
        "How much is read at a time when offsets are loaded.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        LONG,
        10 * MINUTE_MS,
        "How often offsets are looked at for their expiry.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.retention.minutes",
        INT,
        7 * 24 * 60,
        "How long the offsets of a group without members are kept.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.topic.compression.codec",
        INT,
        0,
        "The number of the compression codec of the offsets topic.",
        None,
        HIGH,
    ),
    ConfigKey(
        "offsets.topic.num.partitions",
        INT,
        50,
        "How many partitions the offsets topic has; never change it once it exists.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        SHORT,
        3,
        "How many replicas the offsets topic has.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.topic.segment.bytes",
        INT,
        100 * MIB,
        "How large the segments of the offsets topic grow.",
        AtLeast(1),
        HIGH,
    ),
]

GROUP_KEYS = [*CLASSIC_GROUP_KEYS, *COORDINATOR_KEYS, *CONSUMER_GROUP_KEYS, *OFFSET_KEYS]
