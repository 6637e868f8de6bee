"""Broker properties for share groups and the coordinator of their state."""

from __future__ import annotations

from ottla.base.config.aliases import CLUSTER_WIDE, HIGH, INT, LIST, LOW, MEDIUM, SHORT
from ottla.base.config.definition import KIB, MIB, MINUTE_MS, SECOND_MS, ConfigKey
from ottla.base.config.topic_table import MAX_MESSAGE_BYTES
from ottla.base.config.validator import AtLeast, Between, NonEmpty

SHARE_GROUP_KEYS = [
    ConfigKey(
        "group.share.session.timeout.ms",
        INT,
        45 * SECOND_MS,
        "Time after which a member of a share group that sends no heartbeat is removed from the "
        "group, in milliseconds. No effect: share groups are not in this release.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.share.min.session.timeout.ms",
        INT,
        45 * SECOND_MS,
        "Minimum session timeout that a share group may set, in milliseconds. No effect: share "
        "groups are not in this release.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.share.max.session.timeout.ms",
        INT,
        60 * SECOND_MS,
        "Maximum session timeout that a share group may set, in milliseconds. No effect: share "
        "groups are not in this release.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.share.heartbeat.interval.ms",
        INT,
        5 * SECOND_MS,
        "Interval between heartbeats of a share group member, in milliseconds. No effect: share "
        "groups are not in this release.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.share.min.heartbeat.interval.ms",
        INT,
        5 * SECOND_MS,
        "Minimum heartbeat interval that a share group may set, in milliseconds. No effect: "
        "share groups are not in this release.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.share.max.heartbeat.interval.ms",
        INT,
        15 * SECOND_MS,
        "Maximum heartbeat interval that a share group may set, in milliseconds. No effect: "
        "share groups are not in this release.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.share.assignment.interval.ms",
        INT,
        SECOND_MS,
        "Minimum interval between two target assignments of a share group, in milliseconds. No "
        "effect: share groups are not in this release.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "group.share.min.assignment.interval.ms",
        INT,
        0,
        "Minimum assignment interval that a share group may set, in milliseconds. No effect: "
        "share groups are not in this release.",
        AtLeast(0),
    ),
    ConfigKey(
        "group.share.max.assignment.interval.ms",
        INT,
        15 * SECOND_MS,
        "Maximum assignment interval that a share group may set, in milliseconds. No effect: "
        "share groups are not in this release.",
        AtLeast(0),
    ),
    ConfigKey(
        "group.share.max.size",
        INT,
        200,
        "Maximum number of members in a share group. No effect: share groups are not in this "
        "release.",
        Between(1, 1000),
    ),
    ConfigKey(
        "group.share.assignors",
        LIST,
        ["simple"],
        "Server-side assignors for share groups. No effect: share groups are not in this release.",
        NonEmpty(),
    ),
    ConfigKey(
        "group.share.delivery.count.limit",
        INT,
        5,
        "Maximum number of delivery attempts for a record of a share group. No effect: share "
        "groups are not in this release.",
        Between(2, 10),
    ),
    ConfigKey(
        "group.share.min.delivery.count.limit",
        INT,
        2,
        "Minimum delivery count limit that a share group may set. No effect: share groups are "
        "not in this release.",
        Between(2, 5),
    ),
    ConfigKey(
        "group.share.max.delivery.count.limit",
        INT,
        10,
        "Maximum delivery count limit that a share group may set. No effect: share groups are "
        "not in this release.",
        Between(5, 25),
    ),
    ConfigKey(
        "group.share.record.lock.duration.ms",
        INT,
        30 * SECOND_MS,
        "Duration of the acquisition lock on a delivered record, in milliseconds. No effect: "
        "share groups are not in this release.",
        Between(1 * SECOND_MS, 60 * MINUTE_MS),
    ),
    ConfigKey(
        "group.share.min.record.lock.duration.ms",
        INT,
        15 * SECOND_MS,
        "Minimum record lock duration that a share group may set, in milliseconds. No effect: "
        "share groups are not in this release.",
        Between(1 * SECOND_MS, 30 * SECOND_MS),
    ),
    ConfigKey(
        "group.share.max.record.lock.duration.ms",
        INT,
        60 * SECOND_MS,
        "Maximum record lock duration that a share group may set, in milliseconds. No effect: "
        "share groups are not in this release.",
        Between(30 * SECOND_MS, 60 * MINUTE_MS),
    ),
    ConfigKey(
        "group.share.partition.max.record.locks",
        INT,
        2000,
        "Maximum number of records of a share partition that are locked at the same time. No "
        "effect: share groups are not in this release.",
        Between(100, 10_000),
    ),
    ConfigKey(
        "group.share.min.partition.max.record.locks",
        INT,
        100,
        "Minimum number of record locks per partition that a share group may set. No effect: "
        "share groups are not in this release.",
        Between(100, 2000),
    ),
    ConfigKey(
        "group.share.max.partition.max.record.locks",
        INT,
        4000,
        "Maximum number of record locks per partition that a share group may set. No effect: "
        "share groups are not in this release.",
        Between(2000, 10_000),
    ),
    ConfigKey(
        "group.share.max.share.sessions",
        INT,
        2000,
        "Maximum number of share sessions per broker. No effect: share groups are not in this "
        "release.",
        AtLeast(1),
    ),
    ConfigKey(
        "group.share.initialize.retry.interval.ms",
        INT,
        30 * SECOND_MS,
        "Interval between attempts to initialize the state of a share group, in milliseconds. No "
        "effect: share groups are not in this release.",
        AtLeast(1),
        LOW,
        internal=True,
    ),
]

SHARE_COORDINATOR_KEYS = [
    ConfigKey(
        "share.coordinator.append.linger.ms",
        INT,
        -1,
        "Time that the share coordinator accumulates records before it appends them, in "
        "milliseconds; -1 for an adaptive time. No effect: share groups are not in this release.",
        AtLeast(-1),
    ),
    ConfigKey(
        "share.coordinator.cached.buffer.max.bytes",
        INT,
        MAX_MESSAGE_BYTES,
        "Maximum size of the append buffer that the share coordinator caches, in bytes. No "
        "effect: share groups are not in this release.",
        AtLeast(512 * KIB),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        INT,
        5 * MINUTE_MS,
        "Interval between snapshots of a share partition that does not change, in milliseconds. "
        "No effect: share groups are not in this release.",
        AtLeast(1),
        LOW,
        internal=True,
    ),
    ConfigKey(
        "share.coordinator.load.buffer.size",
        INT,
        5 * MIB,
        "Read size when the share coordinator loads its state into memory, in bytes. No effect: "
        "share groups are not in this release.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "share.coordinator.snapshot.update.records.per.snapshot",
        INT,
        500,
        "Number of update records that the share coordinator writes between two snapshots. No "
        "effect: share groups are not in this release.",
        Between(0, 500),
    ),
    ConfigKey(
        "share.coordinator.state.topic.compression.codec",
        INT,
        0,
        "ID of the compression codec for the share group state topic. No effect: share groups "
        "are not in this release.",
        None,
        HIGH,
    ),
    ConfigKey(
        "share.coordinator.state.topic.min.isr",
        SHORT,
        2,
        "min.insync.replicas of the share group state topic.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "share.coordinator.state.topic.num.partitions",
        INT,
        50,
        "Number of partitions of the share group state topic. Do not change it after the topic "
        "has been created.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "share.coordinator.state.topic.prune.interval.ms",
        INT,
        5 * MINUTE_MS,
        "Interval between deletions of records that the share group state topic no longer needs, "
        "in milliseconds. No effect: share groups are not in this release.",
        AtLeast(1),
        LOW,
        internal=True,
    ),
    ConfigKey(
        "share.coordinator.state.topic.replication.factor",
        SHORT,
        3,
        "Replication factor of the share group state topic.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "share.coordinator.state.topic.segment.bytes",
        INT,
        100 * MIB,
        "Maximum size of a segment of the share group state topic, in bytes.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "share.coordinator.write.timeout.ms",
        INT,
        5 * SECOND_MS,
        "Time that the share coordinator waits for a write to be replicated, in milliseconds. No "
        "effect: share groups are not in this release.",
        AtLeast(1),
        HIGH,
    ),
]

SHARE_KEYS = [*SHARE_GROUP_KEYS, *SHARE_COORDINATOR_KEYS]
