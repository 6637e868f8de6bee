"""Broker properties for logs: their location, and defaults for topics."""

from __future__ import annotations

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

DEFAULT_LOG_DIR = "ottla-data"
"""Default data directory, relative to the working directory.

The start commands use a directory in the user's home instead.
"""

DIRECTORY_KEYS = [
    ConfigKey(
        "log.dir",
        LIST,
        [DEFAULT_LOG_DIR],
        "The directory of the logs when log.dirs is not set.",
        NonEmpty(),
        HIGH,
    ),
    ConfigKey(
        "log.dirs",
        LIST,
        None,
        "The directories of the logs; a new partition goes to the one with the fewest.",
        NonEmpty(),
        HIGH,
    ),
    ConfigKey(
        "log.dir.failure.timeout.ms",
        LONG,
        30 * SECOND_MS,
        "How long a failed directory may stay unreported to the controller.",
        AtLeast(1),
        LOW,
    ),
    ConfigKey(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        "How many threads check logs at the start and flush them at the end.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.initial.task.delay.ms",
        LONG,
        30 * SECOND_MS,
        "How long after the start the first background work on logs begins.",
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
        "How large a segment grows before the next is begun.",
        AtLeast(MIB),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.ms",
        LONG,
        None,
        "How old a segment grows before the next is begun; log.roll.hours if not set.",
        AtLeast(1),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.hours",
        INT,
        168,
        "How old a segment grows before the next is begun, in hours.",
        AtLeast(1),
        HIGH,
    ),
    ConfigKey(
        "log.roll.jitter.ms",
        LONG,
        None,
        "The most that is taken at random off log.roll.ms; log.roll.jitter.hours if not set.",
        AtLeast(0),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.roll.jitter.hours",
        INT,
        0,
        "The most that is taken at random off log.roll.hours, in hours.",
        AtLeast(0),
        HIGH,
    ),
    ConfigKey(
        "log.index.size.max.bytes",
        INT,
        10 * MIB,
        "How large a segment's offset index may grow.",
        AtLeast(4),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.index.interval.bytes",
        INT,
        4096,
        "How many bytes of records lie between two entries of the offset index.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.preallocate",
        BOOLEAN,
        False,
        "Whether a new segment's file takes its full size at once.",
        None,
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.segment.delete.delay.ms",
        LONG,
        MINUTE_MS,
        "How long a removed segment's files stay on disk for readers that still use them.",
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
        "How long records are kept; log.retention.minutes if not set, -1 is for ever.",
        None,
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.retention.minutes",
        INT,
        None,
        "How long records are kept, in minutes; log.retention.hours if not set.",
        None,
        HIGH,
    ),
    ConfigKey("log.retention.hours", INT, 168, "How long records are kept, in hours.", None, HIGH),
    ConfigKey(
        "log.retention.bytes",
        LONG,
        -1,
        "How large a partition may grow before its oldest segments go; -1 is without limit.",
        None,
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.local.retention.ms",
        LONG,
        -2,
        "How long records stay on this machine when older ones are kept remotely; -2 means as "
        "the whole log. Remote storage is not in this release.",
        AtLeast(-2),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.local.retention.bytes",
        LONG,
        -2,
        "How many bytes stay on this machine when older ones are kept remotely; -2 means as "
        "the whole log. Remote storage is not in this release.",
        AtLeast(-2),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.retention.check.interval.ms",
        LONG,
        5 * MINUTE_MS,
        "How often segments are checked for deletion.",
        AtLeast(1),
    ),
    ConfigKey(
        "log.cleanup.policy",
        LIST,
        [DELETE],
        "What happens to old segments: delete, compact, both, or nothing.",
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
        "The largest record batch taken, after compression.",
        AtLeast(0),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.type",
        STRING,
        CREATE_TIME,
        "Whether a record carries the time of its creation or of its append.",
        one_of(CREATE_TIME, LOG_APPEND_TIME),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.before.max.ms",
        LONG,
        LONG_MAX,
        "How far behind the broker's clock a record's CreateTime may be.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "log.message.timestamp.after.max.ms",
        LONG,
        HOUR_MS,
        "How far ahead of the broker's clock a record's CreateTime may be.",
        AtLeast(0),
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        "How batches are compressed on disk; producer keeps them as they were sent.",
        one_of(*COMPRESSION_TYPES),
        HIGH,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        -1,
        "The gzip level when the broker compresses; -1 is the library's default.",
        GZIP_LEVEL,
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        9,
        "The lz4 level when the broker compresses.",
        LZ4_LEVEL,
        MEDIUM,
        CLUSTER_WIDE,
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        3,
        "The zstd level when the broker compresses.",
        ZSTD_LEVEL,
        MEDIUM,
        CLUSTER_WIDE,
    ),
]

LOG_KEYS = [*DIRECTORY_KEYS, *SEGMENT_KEYS, *RETENTION_KEYS, *MESSAGE_KEYS]
