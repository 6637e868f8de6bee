"""Broker properties for consumer groups and their offsets."""

from __future__ import annotations

from ottla.base.config.aliases import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    LIST,
    LONG,
    MEDIUM,
    SHORT,
    STRING,
)
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

CLASSIC_GROUP_KEYS = [
    ConfigKey(
        "group.min.session.timeout.ms",
        INT,
        6 * SECOND_MS,
        "Minimum session timeout that a member of a classic group may request, in milliseconds.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms",
        INT,
        30 * MINUTE_MS,
        "Maximum session timeout that a member of a classic group may request, in milliseconds.",
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms",
        INT,
        3 * SECOND_MS,
        "Time that the coordinator waits for more members to join an empty group before the "
        "first rebalance, in milliseconds.",
    ),
    ConfigKey(
        "group.max.size",
        INT,
        INT_MAX,
        "Maximum number of members in a classic group.",
        AtLeast(1),
    ),
]

COORDINATOR_KEYS = [
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        LIST,
        ["classic", "consumer", "streams"],
        "Group protocols that the broker accepts. share and streams have no effect: these groups "
        "are not in this release.",
        each_one_of(["consumer", "classic", "share", "streams"], empty=False),
    ),
    ConfigKey(
        "group.coordinator.threads",
        INT,
        4,
        "No effect: one event loop serves all requests of a broker.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "group.coordinator.append.linger.ms",
        INT,
        -1,
        "No effect: the group coordinator chooses its own batching.",
        AtLeast(-1),
    ),
    ConfigKey(
        "group.coordinator.cached.buffer.max.bytes",
        INT,
        MAX_MESSAGE_BYTES,
        "No effect: the group coordinator does not cache its append buffers.",
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
        "Time after which a member of a consumer group that sends no heartbeat is removed from "
        "the group, in milliseconds.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.min.session.timeout.ms",
        INT,
        45 * SECOND_MS,
        "Minimum session timeout that a consumer group may set, in milliseconds.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.max.session.timeout.ms",
        INT,
        60 * SECOND_MS,
        "Maximum session timeout that a consumer group may set, in milliseconds.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5 * SECOND_MS,
        "Interval between heartbeats of a consumer group member, in milliseconds.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5 * SECOND_MS,
        "Minimum heartbeat interval that a consumer group may set, in milliseconds.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15 * SECOND_MS,
        "Maximum heartbeat interval that a consumer group may set, in milliseconds.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.assignment.interval.ms",
        INT,
        SECOND_MS,
        "Minimum interval between two target assignments of a consumer group, in milliseconds.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        "Minimum assignment interval that a consumer group may set, in milliseconds.",
        AtLeast(0),
    ),
    ConfigKey(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15 * SECOND_MS,
        "Maximum assignment interval that a consumer group may set, in milliseconds.",
        AtLeast(0),
    ),
    ConfigKey(
        "group.consumer.max.size",
        INT,
        INT_MAX,
        "Maximum number of members in a consumer group.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.consumer.assignors",
        LIST,
        ["uniform", "range"],
        "Server-side assignors. The first one is the default.",
        each_one_of(["uniform", "range"], empty=False),
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "Conversions allowed between classic and consumer groups: upgrade, downgrade, "
        "bidirectional or disabled.",
        OneOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"), ignore_case=True),
    ),
    ConfigKey(
        "group.consumer.regex.refresh.interval.ms",
        INT,
        10 * MINUTE_MS,
        "No effect: regular expression subscriptions are matched again when topics or ACLs change.",
        AtLeast(10 * SECOND_MS),
        internal=True,
    ),
]

OFFSET_KEYS = [
    ConfigKey(
        "offset.metadata.max.bytes",
        INT,
        4096,
        "Maximum size of the metadata stored with a committed offset, in bytes.",
        None,
        HIGH,
    ),
    ConfigKey(
        "offsets.commit.timeout.ms",
        INT,
        5 * SECOND_MS,
        "Maximum time that a request to the group coordinator, such as an offset commit, waits for "
        "the replicas of the offsets topic, in milliseconds.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.load.buffer.size",
        INT,
        5 * MIB,
        "Read size when the coordinator loads offsets into memory, in bytes.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.retention.check.interval.ms",
        LONG,
        10 * MINUTE_MS,
        "Interval between checks for expired offsets, in milliseconds.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.retention.minutes",
        INT,
        7 * 24 * 60,
        "Time after which the committed offsets of a group without members expire, in minutes.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.topic.compression.codec",
        INT,
        0,
        "ID of the compression codec for the offsets topic.",
        None,
        HIGH,
    ),
    ConfigKey(
        "offsets.topic.num.partitions",
        INT,
        50,
        "Number of partitions of the offsets topic. Do not change it after the topic has been "
        "created.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.topic.replication.factor",
        SHORT,
        3,
        "Replication factor of the offsets topic.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "offsets.topic.segment.bytes",
        INT,
        100 * MIB,
        "Maximum size of a segment of the offsets topic, in bytes.",
        AtLeast(1),
        HIGH,
    ),
]

GROUP_KEYS = [*CLASSIC_GROUP_KEYS, *COORDINATOR_KEYS, *CONSUMER_GROUP_KEYS, *OFFSET_KEYS]
