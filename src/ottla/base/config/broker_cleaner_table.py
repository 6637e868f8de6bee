"""Broker properties for compaction and flushing, the background work on logs."""

from __future__ import annotations

from ottla.base.config.aliases import BOOLEAN, CLUSTER_WIDE, DOUBLE, HIGH, INT, LONG, MEDIUM
from ottla.base.config.definition import (
    DAY_MS,
    DOUBLE_MAX,
    KIB,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    ConfigKey,
)
from ottla.base.config.validator import AtLeast, Between

CLEANER_KEYS = [
    ConfigKey(
        "log.cleaner.enable",
        BOOLEAN,
        True,
        "Whether the log cleaner runs. It compacts topics whose cleanup.policy includes compact.",
    ),
    ConfigKey(
        "log.cleaner.threads",
        INT,
        1,
        "Number of logs that the log cleaner compacts at the same time.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        DOUBLE_MAX,
        "Maximum rate at which the log cleaner reads and writes, in bytes per second: the sum of "
        "both, over all cleaner threads.",
        None,
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 * MIB,
        "Total memory for deduplicating keys across all cleaner threads, in bytes.",
        None,
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        INT,
        512 * KIB,
        "Total memory for I/O buffers across all cleaner threads, in bytes.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        "Maximum load factor of the deduplication buffer.",
        None,
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        LONG,
        15 * SECOND_MS,
        "Time that the log cleaner sleeps when there is nothing to compact, in milliseconds.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        0.5,
        "Minimum ratio of dirty log to total log for a log to be eligible for compaction.",
        Between(0, 1),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.delete.retention.ms",
        LONG,
        DAY_MS,
        "Time that tombstones are retained in compacted topics, in milliseconds.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        0,
        "Minimum time that a record remains uncompacted in the log, in milliseconds.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        LONG_MAX,
        "Maximum time that a record remains ineligible for compaction in the log, in milliseconds.",
        AtLeast(1),
        MEDIUM,
        CLUSTER_WIDE,
    ),
]

FLUSH_KEYS = [
    ConfigKey(
        "log.flush.interval.messages",
        LONG,
        LONG_MAX,
        "Number of records appended to a log before it is flushed to disk.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.interval.ms",
        LONG,
        None,
        "Maximum time that a record is in memory before its log is flushed to disk, in "
        "milliseconds. If not set, log.flush.scheduler.interval.ms applies.",
        AtLeast(0),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms",
        LONG,
        LONG_MAX,
        "Default value of log.flush.interval.ms, in milliseconds. The broker checks for logs "
        "that are due to be flushed at a fixed interval.",
        None,
        HIGH,
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        MINUTE_MS,
        "Interval between updates of the recovery point and log start offset checkpoints, in "
        "milliseconds.",
        AtLeast(0),
        HIGH,
    ),
    ConfigKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        MINUTE_MS,
        "No effect: log start offsets are checkpointed together with recovery points, see "
        "log.flush.offset.checkpoint.interval.ms.",
        AtLeast(0),
        HIGH,
    ),
    ConfigKey(
        "log.flush.acks.all",
        BOOLEAN,
        False,
        "Whether a produce request with acks=all is acknowledged only after its records are "
        "flushed to disk. Concurrent requests share one flush. Specific to Ottla.",
        None,
        HIGH,
    ),
]
