"""All topic properties of Kafka 4.3, and the broker properties that provide their defaults."""

from __future__ import annotations

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
from ottla.base.config.vocabulary import BOOLEAN, DOUBLE, INT, LIST, LONG, STRING

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
            "What happens to old segments: delete drops them by age and size, compact keeps the "
            "last record of each key. Both may be given; none keeps everything.",
            "log.cleanup.policy",
            validator=each_one_of([COMPACT, DELETE]),
        ),
        _key(
            "compression.gzip.level",
            INT,
            -1,
            "The gzip level when the broker compresses; -1 is the library's default.",
            "compression.gzip.level",
            validator=GZIP_LEVEL,
        ),
        _key(
            "compression.lz4.level",
            INT,
            9,
            "The lz4 level when the broker compresses.",
            "compression.lz4.level",
            validator=LZ4_LEVEL,
        ),
        _key(
            "compression.type",
            STRING,
            "producer",
            "How batches are compressed on disk; producer keeps them as they were sent.",
            "compression.type",
            validator=one_of(*COMPRESSION_TYPES),
        ),
        _key(
            "compression.zstd.level",
            INT,
            3,
            "The zstd level when the broker compresses.",
            "compression.zstd.level",
            validator=ZSTD_LEVEL,
        ),
        _key(
            "delete.retention.ms",
            LONG,
            DAY_MS,
            "How long a compacted topic keeps the marker of a deleted key, and so how long a "
            "reader may take from the start of the log without missing the deletion.",
            "log.cleaner.delete.retention.ms",
            validator=AtLeast(0),
        ),
        _key(
            "file.delete.delay.ms",
            LONG,
            MINUTE_MS,
            "How long a removed segment's files stay on disk for readers that still use them.",
            "log.segment.delete.delay.ms",
            validator=AtLeast(0),
        ),
        _key(
            "flush.messages",
            LONG,
            LONG_MAX,
            "After how many records the log is forced to disk.",
            "log.flush.interval.messages",
            validator=AtLeast(1),
        ),
        _key(
            "flush.ms",
            LONG,
            LONG_MAX,
            "After how much time the log is forced to disk.",
            "log.flush.interval.ms",
            "log.flush.scheduler.interval.ms",
            validator=AtLeast(0),
        ),
        _key(
            "follower.replication.throttled.replicas",
            LIST,
            [],
            "The replicas whose copying is slowed on the follower's side.",
            validator=ThrottledReplicas(),
        ),
        _key(
            "index.interval.bytes",
            INT,
            4096,
            "How many bytes of records lie between two entries of the offset index.",
            "log.index.interval.bytes",
            validator=AtLeast(0),
        ),
        _key(
            "leader.replication.throttled.replicas",
            LIST,
            [],
            "The replicas whose copying is slowed on the leader's side.",
            validator=ThrottledReplicas(),
        ),
        _key(
            "local.retention.bytes",
            LONG,
            -2,
            "How many bytes stay on this machine when older ones are kept remotely; -2 means "
            "as retention.bytes. Remote storage is not in this release.",
            "log.local.retention.bytes",
            validator=AtLeast(-2),
        ),
        _key(
            "local.retention.ms",
            LONG,
            -2,
            "How long records stay on this machine when older ones are kept remotely; -2 means "
            "as retention.ms. Remote storage is not in this release.",
            "log.local.retention.ms",
            validator=AtLeast(-2),
        ),
        _key(
            "max.compaction.lag.ms",
            LONG,
            LONG_MAX,
            "The longest that a record may wait to be compacted.",
            "log.cleaner.max.compaction.lag.ms",
            validator=AtLeast(1),
        ),
        _key(
            "max.message.bytes",
            INT,
            MAX_MESSAGE_BYTES,
            "The largest record batch taken, after compression.",
            "message.max.bytes",
            validator=AtLeast(0),
        ),
        _key(
            "message.timestamp.after.max.ms",
            LONG,
            HOUR_MS,
            "How far ahead of the broker's clock a record's CreateTime may be.",
            "log.message.timestamp.after.max.ms",
            validator=AtLeast(0),
        ),
        _key(
            "message.timestamp.before.max.ms",
            LONG,
            LONG_MAX,
            "How far behind the broker's clock a record's CreateTime may be.",
            "log.message.timestamp.before.max.ms",
            validator=AtLeast(0),
        ),
        _key(
            "message.timestamp.type",
            STRING,
            CREATE_TIME,
            "Whether a record carries the time of its creation or of its append.",
            "log.message.timestamp.type",
            validator=one_of(CREATE_TIME, LOG_APPEND_TIME),
        ),
        _key(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            0.5,
            "How large the uncompacted share of the log must be before it is compacted.",
            "log.cleaner.min.cleanable.ratio",
            validator=Between(0, 1),
        ),
        _key(
            "min.compaction.lag.ms",
            LONG,
            0,
            "How long a record stays uncompacted at the least.",
            "log.cleaner.min.compaction.lag.ms",
            validator=AtLeast(0),
        ),
        _key(
            "min.insync.replicas",
            INT,
            1,
            "How many replicas must have a record before a producer with acks=all is answered.",
            "min.insync.replicas",
            validator=AtLeast(1),
        ),
        _key(
            "preallocate",
            BOOLEAN,
            False,
            "Whether a new segment's file takes its full size at once.",
            "log.preallocate",
        ),
        _key(
            "remote.log.copy.disable",
            BOOLEAN,
            False,
            "Whether copying to remote storage is stopped. Remote storage is not in this release.",
        ),
        _key(
            "remote.log.delete.on.disable",
            BOOLEAN,
            False,
            "Whether remote data is deleted when remote storage is switched off for the topic. "
            "Remote storage is not in this release.",
        ),
        _key(
            "remote.storage.enable",
            BOOLEAN,
            False,
            "Whether old segments move to remote storage. Not in this release: only false.",
        ),
        _key(
            "retention.bytes",
            LONG,
            -1,
            "How large a partition may grow before its oldest segments are deleted; -1 is "
            "without limit.",
            "log.retention.bytes",
        ),
        _key(
            "retention.ms",
            LONG,
            7 * DAY_MS,
            "How long records are kept before their segment is deleted; -1 is for ever.",
            "log.retention.ms",
            Synonym("log.retention.minutes", MINUTE_MS),
            Synonym("log.retention.hours", HOUR_MS),
            validator=AtLeast(-1),
        ),
        _key(
            "segment.bytes",
            INT,
            1024 * MIB,
            "How large a segment grows before the next is begun.",
            "log.segment.bytes",
            validator=AtLeast(MIB),
        ),
        _key(
            "segment.index.bytes",
            INT,
            10 * MIB,
            "How large a segment's offset index may grow.",
            "log.index.size.max.bytes",
            validator=AtLeast(4),
        ),
        _key(
            "segment.jitter.ms",
            LONG,
            0,
            "The most that is taken at random off segment.ms, so that not all roll at once.",
            "log.roll.jitter.ms",
            Synonym("log.roll.jitter.hours", HOUR_MS),
            validator=AtLeast(0),
        ),
        _key(
            "segment.ms",
            LONG,
            7 * DAY_MS,
            "How old a segment grows before the next is begun.",
            "log.roll.ms",
            Synonym("log.roll.hours", HOUR_MS),
            validator=AtLeast(1),
        ),
        _key(
            "unclean.leader.election.enable",
            BOOLEAN,
            False,
            "Whether a replica that lacks acknowledged records may become leader when no other "
            "is left.",
            "unclean.leader.election.enable",
        ),
        ConfigKey(
            "internal.segment.bytes",
            INT,
            None,
            "segment.bytes without its lower bound, for tests.",
            AtLeast(1),
            internal=True,
        ),
    ],
)
