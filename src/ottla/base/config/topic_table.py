"""All topic properties of Kafka 4.3, and the broker properties that provide their defaults."""

from __future__ import annotations

from ottla.base.config.aliases import BOOLEAN, DOUBLE, INT, LIST, LONG, STRING
from ottla.base.config.definition import (
    DAY_MS,
    HOUR_MS,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    ConfigKey,
    ConfigTable,
    ConfigType,
    Synonym,
)
from ottla.base.config.validator import (
    AtLeast,
    Between,
    ThrottledReplicas,
    Validator,
    Value,
    each_one_of,
    one_of,
)

COMPACT = "compact"
DELETE = "delete"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
GZIP_LEVEL = Between(1, 9, also=-1)
LZ4_LEVEL = Between(1, 17)
ZSTD_LEVEL = Between(-131072, 22)
MAX_MESSAGE_BYTES = MIB + 12
"""Default limit for a batch: one mebibyte, plus the offset and size fields in front of it."""


def _key(
    name: str,
    kind: ConfigType,
    default: Value,
    doc: str,
    *synonyms: str | Synonym,
    validator: Validator | None = None,
) -> ConfigKey:
    chain = tuple(Synonym(each) if isinstance(each, str) else each for each in synonyms)
    return ConfigKey(name, kind, default, doc, validator, synonyms=chain)


TOPIC = ConfigTable(
    "topic",
    [
        _key(
            "cleanup.policy",
            LIST,
            [DELETE],
            "Cleanup policy for old segments: delete removes them by age and size, compact "
            "retains the latest record of each key. Both may be set; empty retains everything.",
            "log.cleanup.policy",
            validator=each_one_of([COMPACT, DELETE]),
        ),
        _key(
            "compression.gzip.level",
            INT,
            -1,
            "Compression level for gzip when the broker compresses; -1 for the library's default.",
            "compression.gzip.level",
            validator=GZIP_LEVEL,
        ),
        _key(
            "compression.lz4.level",
            INT,
            9,
            "Compression level for lz4 when the broker compresses.",
            "compression.lz4.level",
            validator=LZ4_LEVEL,
        ),
        _key(
            "compression.type",
            STRING,
            "producer",
            "Compression codec for stored batches; producer keeps the codec that the producer "
            "chose.",
            "compression.type",
            validator=one_of(*COMPRESSION_TYPES),
        ),
        _key(
            "compression.zstd.level",
            INT,
            3,
            "Compression level for zstd when the broker compresses.",
            "compression.zstd.level",
            validator=ZSTD_LEVEL,
        ),
        _key(
            "delete.retention.ms",
            LONG,
            DAY_MS,
            "Time that tombstones are retained in a compacted topic, in milliseconds. A consumer "
            "that reads from the beginning must finish within this time to see every deletion.",
            "log.cleaner.delete.retention.ms",
            validator=AtLeast(0),
        ),
        _key(
            "file.delete.delay.ms",
            LONG,
            MINUTE_MS,
            "Time to wait before the files of a deleted segment are removed from disk, in "
            "milliseconds.",
            "log.segment.delete.delay.ms",
            validator=AtLeast(0),
        ),
        _key(
            "flush.messages",
            LONG,
            LONG_MAX,
            "Number of records appended to the log before it is flushed to disk.",
            "log.flush.interval.messages",
            validator=AtLeast(1),
        ),
        _key(
            "flush.ms",
            LONG,
            LONG_MAX,
            "Maximum time that a record is in memory before the log is flushed to disk, in "
            "milliseconds.",
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
            validator=AtLeast(0),
        ),
        _key(
            "follower.replication.throttled.replicas",
            LIST,
            [],
            "Replicas whose replication is throttled on the follower.",
            validator=ThrottledReplicas(),
        ),
        _key(
            "index.interval.bytes",
            INT,
            4096,
            "Number of bytes between two entries of the offset index.",
            "log.index.interval.bytes",
            validator=AtLeast(0),
        ),
        _key(
            "leader.replication.throttled.replicas",
            LIST,
            [],
            "Replicas whose replication is throttled on the leader.",
            validator=ThrottledReplicas(),
        ),
        _key(
            "local.retention.bytes",
            LONG,
            -2,
            "Maximum local size of a partition when remote storage is enabled, in bytes; -2 to "
            "use retention.bytes. No effect: remote storage is not in this release.",
            "log.local.retention.bytes",
            validator=AtLeast(-2),
        ),
        _key(
            "local.retention.ms",
            LONG,
            -2,
            "Time that a segment is retained locally when remote storage is enabled, in "
            "milliseconds; -2 to use retention.ms. No effect: remote storage is not in this "
            "release.",
            "log.local.retention.ms",
            validator=AtLeast(-2),
        ),
        _key(
            "max.compaction.lag.ms",
            LONG,
            LONG_MAX,
            "Maximum time that a record remains ineligible for compaction in the log, in "
            "milliseconds.",
            "log.cleaner.max.compaction.lag.ms",
            validator=AtLeast(1),
        ),
        _key(
            "max.message.bytes",
            INT,
            MAX_MESSAGE_BYTES,
            "Maximum size of a record batch after compression, in bytes.",
            "message.max.bytes",
            validator=AtLeast(0),
        ),
        _key(
            "message.timestamp.after.max.ms",
            LONG,
            HOUR_MS,
            "Maximum time that a record's CreateTime may be ahead of the broker's clock, in "
            "milliseconds.",
            "log.message.timestamp.after.max.ms",
            validator=AtLeast(0),
        ),
        _key(
            "message.timestamp.before.max.ms",
            LONG,
            LONG_MAX,
            "Maximum time that a record's CreateTime may be behind the broker's clock, in "
            "milliseconds.",
            "log.message.timestamp.before.max.ms",
            validator=AtLeast(0),
        ),
        _key(
            "message.timestamp.type",
            STRING,
            CREATE_TIME,
            "Meaning of record timestamps: CreateTime, set by the producer, or LogAppendTime, "
            "set by the broker.",
            "log.message.timestamp.type",
            validator=one_of(CREATE_TIME, LOG_APPEND_TIME),
        ),
        _key(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            0.5,
            "Minimum ratio of dirty log to total log for the log to be eligible for compaction.",
            "log.cleaner.min.cleanable.ratio",
            validator=Between(0, 1),
        ),
        _key(
            "min.compaction.lag.ms",
            LONG,
            0,
            "Minimum time that a record remains uncompacted in the log, in milliseconds.",
            "log.cleaner.min.compaction.lag.ms",
            validator=AtLeast(0),
        ),
        _key(
            "min.insync.replicas",
            INT,
            1,
            "Minimum number of in-sync replicas for a produce request with acks=all to succeed.",
            "min.insync.replicas",
            validator=AtLeast(1),
        ),
        _key(
            "preallocate",
            BOOLEAN,
            False,
            "Whether to preallocate the file of a new segment. No effect: segment files grow as "
            "records are appended.",
            "log.preallocate",
        ),
        _key(
            "remote.log.copy.disable",
            BOOLEAN,
            False,
            "Whether to stop copying segments to remote storage. No effect: remote storage is not "
            "in this release.",
        ),
        _key(
            "remote.log.delete.on.disable",
            BOOLEAN,
            False,
            "Whether to delete the topic's remote data when remote storage is disabled for it. "
            "No effect: remote storage is not in this release.",
        ),
        _key(
            "remote.storage.enable",
            BOOLEAN,
            False,
            "Whether to copy segments to remote storage. Remote storage is not in this release; "
            "the value must be false.",
        ),
        _key(
            "retention.bytes",
            LONG,
            -1,
            "Maximum size of a partition before its oldest segments are deleted, in bytes; -1 "
            "for no limit.",
            "log.retention.bytes",
        ),
        _key(
            "retention.ms",
            LONG,
            7 * DAY_MS,
            "Time that a segment is retained before it is deleted, in milliseconds; -1 for no "
            "limit.",
            "log.retention.ms",
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
            validator=AtLeast(-1),
        ),
        _key(
            "segment.bytes",
            INT,
            1024 * MIB,
            "Maximum size of a log segment, in bytes.",
            "log.segment.bytes",
            validator=AtLeast(MIB),
        ),
        _key(
            "segment.index.bytes",
            INT,
            10 * MIB,
            "Maximum size of an offset index, in bytes.",
            "log.index.size.max.bytes",
            validator=AtLeast(4),
        ),
        _key(
            "segment.jitter.ms",
            LONG,
            0,
            "Maximum jitter subtracted from segment.ms to avoid rolling many segments at once, "
            "in milliseconds.",
            "log.roll.jitter.ms",
            Synonym("log.roll.jitter.hours", HOUR_MS),
            validator=AtLeast(0),
        ),
        _key(
            "segment.ms",
            LONG,
            7 * DAY_MS,
            "Maximum age of the active segment before a new one is rolled, in milliseconds.",
            "log.roll.ms",
            Synonym("log.roll.hours", HOUR_MS),
            validator=AtLeast(1),
        ),
        _key(
            "unclean.leader.election.enable",
            BOOLEAN,
            False,
            "Whether a replica outside the ISR may be elected leader as a last resort. "
            "Acknowledged records may be lost.",
            "unclean.leader.election.enable",
        ),
        ConfigKey(
            "internal.segment.bytes",
            INT,
            None,
            "segment.bytes without its minimum, for tests, in bytes.",
            AtLeast(1),
            internal=True,
        ),
    ],
)
