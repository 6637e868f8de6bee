"""Broker properties for logs: their location, and defaults for topics."""

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
from ottla.base.config.definition import (
    HOUR_MS,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    ConfigKey,
)
from ottla.base.config.topic_table import (
    COMPACT,
    COMPRESSION_TYPES,
    CREATE_TIME,
    DELETE,
    GZIP_LEVEL,
    LOG_APPEND_TIME,
    LZ4_LEVEL,
    MAX_MESSAGE_BYTES,
    ZSTD_LEVEL,
)
from ottla.base.config.validator import AtLeast, NonEmpty, each_one_of, one_of

DEFAULT_LOG_DIR = "ottla-data"
"""Default data directory, relative to the working directory.

The start commands use a directory in the user's home instead.
"""

DIRECTORY_KEYS = [
    ConfigKey(
        "log.dir",
        LIST,
        [DEFAULT_LOG_DIR],
        "Directories that hold the logs, used if log.dirs is not set.",
        NonEmpty(),
        HIGH,
    ),
    ConfigKey(
        "log.dirs",
        LIST,
        None,
        "Directories that hold the logs. A new partition is placed in the directory with the "
        "fewest partitions. If not set, log.dir applies.",
        NonEmpty(),
        HIGH,
    ),
    ConfigKey(
        "log.dir.failure.timeout.ms",
        LONG,
        30 * SECOND_MS,
        "No effect: brokers do not report failed log directories to the controller.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        "No effect: one thread recovers the logs of a broker.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.initial.task.delay.ms",
        LONG,
        30 * SECOND_MS,
        "No effect: each background task first runs after its own interval.",
        AtLeast(0),
        LOW,
        internal=True,
    ),
]

SEGMENT_KEYS = [
    ConfigKey(
        "log.segment.bytes",
        INT,
        1024 * MIB,
        "Maximum size of a log segment, in bytes.",
        AtLeast(MIB),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.ms",
        LONG,
        None,
        "Maximum age of the active segment before a new one is rolled, in milliseconds. If not "
        "set, log.roll.hours applies.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.hours",
        INT,
        168,
        "Maximum age of the active segment before a new one is rolled, in hours.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "log.roll.jitter.ms",
        LONG,
        None,
        "Maximum jitter subtracted from log.roll.ms, in milliseconds. If not set, "
        "log.roll.jitter.hours applies.",
        AtLeast(0),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.jitter.hours",
        INT,
        0,
        "Maximum jitter subtracted from log.roll.hours, in hours.",
        AtLeast(0),
        HIGH,
    ),
    ConfigKey(
        "log.index.size.max.bytes",
        INT,
        10 * MIB,
        "Maximum size of an offset index, in bytes.",
        AtLeast(4),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.index.interval.bytes",
        INT,
        4096,
        "Number of bytes between two entries of the offset index.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.preallocate",
        BOOLEAN,
        False,
        "Whether to preallocate the file of a new segment. No effect: segment files grow as "
        "records are appended.",
        None,
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.segment.delete.delay.ms",
        LONG,
        MINUTE_MS,
        "Time to wait before the files of a deleted segment are removed from disk, in "
        "milliseconds.",
        AtLeast(0),
        HIGH,
        CLUSTER_WIDE,
    ),
]

RETENTION_KEYS = [
    ConfigKey(
        "log.retention.ms",
        LONG,
        None,
        "Time that a segment is retained before it is deleted, in milliseconds; -1 for no limit. "
        "If not set, log.retention.minutes applies.",
        None,
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.retention.minutes",
        INT,
        None,
        "Time that a segment is retained before it is deleted, in minutes. If not set, "
        "log.retention.hours applies.",
        None,
        HIGH,
    ),
    ConfigKey(
        "log.retention.hours",
        INT,
        168,
        "Time that a segment is retained before it is deleted, in hours.",
        None,
        HIGH,
    ),
    ConfigKey(
        "log.retention.bytes",
        LONG,
        -1,
        "Maximum size of a partition before its oldest segments are deleted, in bytes; -1 for no "
        "limit.",
        None,
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.local.retention.ms",
        LONG,
        -2,
        "Time that a segment is retained locally when remote storage is enabled, in "
        "milliseconds; -2 to use log.retention.ms. No effect: remote storage is not in this "
        "release.",
        AtLeast(-2),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.local.retention.bytes",
        LONG,
        -2,
        "Maximum local size of a partition when remote storage is enabled, in bytes; -2 to use "
        "log.retention.bytes. No effect: remote storage is not in this release.",
        AtLeast(-2),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.retention.check.interval.ms",
        LONG,
        5 * MINUTE_MS,
        "Interval between checks for segments that are eligible for deletion, in milliseconds.",
        AtLeast(1),
    ),
    ConfigKey(
        "log.cleanup.policy",
        LIST,
        [DELETE],
        "Cleanup policy for old segments: delete, compact, both, or empty to retain everything.",
        each_one_of([COMPACT, DELETE]),
        MEDIUM,
        CLUSTER_WIDE,
    ),
]

MESSAGE_KEYS = [
    ConfigKey(
        "message.max.bytes",
        INT,
        MAX_MESSAGE_BYTES,
        "Maximum size of a record batch after compression, in bytes.",
        AtLeast(0),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.type",
        STRING,
        CREATE_TIME,
        "Meaning of record timestamps: CreateTime, set by the producer, or LogAppendTime, set by "
        "the broker.",
        one_of(CREATE_TIME, LOG_APPEND_TIME),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        "Maximum time that a record's CreateTime may be behind the broker's clock, in "
        "milliseconds.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.after.max.ms",
        LONG,
        HOUR_MS,
        "Maximum time that a record's CreateTime may be ahead of the broker's clock, in "
        "milliseconds.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        "Compression codec for stored batches; producer keeps the codec that the producer chose.",
        one_of(*COMPRESSION_TYPES),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        -1,
        "Compression level for gzip when the broker compresses; -1 for the library's default.",
        GZIP_LEVEL,
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        9,
        "Compression level for lz4 when the broker compresses.",
        LZ4_LEVEL,
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        3,
        "Compression level for zstd when the broker compresses.",
        ZSTD_LEVEL,
        MEDIUM,
        CLUSTER_WIDE,
    ),
]

LOG_KEYS = [*DIRECTORY_KEYS, *SEGMENT_KEYS, *RETENTION_KEYS, *MESSAGE_KEYS]
