"""Records of consumer groups (KIP-848), byte for byte as Apache Kafka writes them.

A key starts with an int16 that identifies the kind of record. All values have version 0 and are
flexible. A record without a value is a tombstone.

    key 3   group; value: epoch int32; metadata hash int64, tag 0
    key 4   group; value: the subscribed topics, as Kafka 4.0 kept them. Never written; an existing
            one gets a tombstone with the group's next epoch
    key 5   group, member; value: instance id, rack id: string?; client id, host: string;
            topics: array of string; pattern: string?; rebalance timeout int32; assignor: string?;
            of a member that uses the classic protocol, tag 0: session timeout int32, protocols:
            array of (name: string, metadata: bytes)
    key 6   group; value: assignment epoch int32; assignment timestamp int64, tag 0
    key 7   group, member; value: target assignment
    key 8   group, member; value: epoch, previous epoch: int32; state int8; assigned partitions;
            partitions pending revocation
    key 16  group, pattern; value: matching topics: array of string; metadata version int64;
            timestamp int64 of the match

    An assignment is an array of (topic id, array of int32).

Kafka 4.3 also keeps the epoch in which each partition was assigned (KIP-1251, tag 0 in the arrays
of key 8). This field is skipped when reading, and never written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeAlias, TypeVar

from ottla.core.record_fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    NO_TAGS,
    RecordReader,
    compact_array,
    compact_bytes,
    compact_string,
    key_string,
    tagged_fields,
)

T = TypeVar("T")

GROUP_EPOCH_KEY = 3
SUBSCRIPTION_METADATA_KEY = 4
MEMBER_KEY = 5
TARGET_EPOCH_KEY = 6
TARGET_KEY = 7
CURRENT_KEY = 8
PATTERN_KEY = 16

NO_HASH = 0
NO_TIMESTAMP = 0
_VERSION = INT16.pack(0)
_FIRST_TAG = 0

Assignment: TypeAlias = Mapping[bytes, frozenset[int]]
"""Non-empty sets of partitions by topic id. Must not be modified in place."""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


class MemberState(IntEnum):
    STABLE = 0
    """The member has reached its target assignment."""
    UNREVOKED_PARTITIONS = 1
    """The member has to revoke partitions, and has not confirmed it yet."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members have not revoked yet."""
    UNKNOWN = 127


class GroupEpoch(NamedTuple):
    epoch: int
    metadata_hash: int = NO_HASH


class ClassicMetadata(NamedTuple):
    session_timeout_ms: int
    protocols: Protocols


class MemberMetadata(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    """Topic names, sorted and without duplicates."""
    pattern: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMetadata | None = None
    """Session timeout and protocols, if the member uses the classic protocol."""


class TargetEpoch(NamedTuple):
    epoch: int
    timestamp_ms: int = NO_TIMESTAMP


class CurrentAssignment(NamedTuple):
    epoch: int
    previous_epoch: int
    state: int
    assigned: Assignment
    pending_revocation: Assignment


class ResolvedPattern(NamedTuple):
    topics: tuple[str, ...]
    metadata_version: int
    timestamp_ms: int


class GroupEpochRecord(NamedTuple):
    group_id: str
    value: GroupEpoch | None


class SubscriptionMetadataRecord(NamedTuple):
    group_id: str
    value: bytes | None


class MemberRecord(NamedTuple):
    group_id: str
    member_id: str
    value: MemberMetadata | None


class TargetEpochRecord(NamedTuple):
    group_id: str
    value: TargetEpoch | None


class TargetRecord(NamedTuple):
    group_id: str
    member_id: str
    value: Assignment | None


class CurrentRecord(NamedTuple):
    group_id: str
    member_id: str
    value: CurrentAssignment | None


class PatternRecord(NamedTuple):
    group_id: str
    pattern: str
    value: ResolvedPattern | None


ConsumerRecord: TypeAlias = (
    GroupEpochRecord
    | SubscriptionMetadataRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | PatternRecord
)
CONSUMER_RECORDS = (
    GroupEpochRecord,
    SubscriptionMetadataRecord,
    MemberRecord,
    TargetEpochRecord,
    TargetRecord,
    CurrentRecord,
    PatternRecord,
)

# -------------------------------------------------------------------------------------- encoding


def encode_consumer_record(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    match record:
        case GroupEpochRecord(_, group_epoch):
            return _key(GROUP_EPOCH_KEY, record.group_id), (
                None if group_epoch is None else encode_group_epoch(group_epoch)
            )
        case SubscriptionMetadataRecord(_, data):
            return _key(SUBSCRIPTION_METADATA_KEY, record.group_id), data
        case MemberRecord(_, member_id, member):
            return _key(MEMBER_KEY, record.group_id, member_id), (
                None if member is None else encode_member(member)
            )
        case TargetEpochRecord(_, target_epoch):
            return _key(TARGET_EPOCH_KEY, record.group_id), (
                None if target_epoch is None else encode_target_epoch(target_epoch)
            )
        case TargetRecord(_, member_id, target):
            return _key(TARGET_KEY, record.group_id, member_id), (
                None if target is None else _VERSION + _assignment(target) + NO_TAGS
            )
        case CurrentRecord(_, member_id, current):
            return _key(CURRENT_KEY, record.group_id, member_id), (
                None if current is None else encode_current(current)
            )
        case PatternRecord(_, pattern, resolved):
            return _key(PATTERN_KEY, record.group_id, pattern), (
                None if resolved is None else encode_pattern(resolved)
            )


def _key(kind: int, *names: str) -> bytes:
    return INT16.pack(kind) + b"".join(key_string(name) for name in names)


def encode_group_epoch(value: GroupEpoch) -> bytes:
    tags = {} if value.metadata_hash == NO_HASH else {_FIRST_TAG: INT64.pack(value.metadata_hash)}
    return _VERSION + INT32.pack(value.epoch) + tagged_fields(tags)


def encode_member(value: MemberMetadata) -> bytes:
    # Kafka writes the null explicitly: it would read an absent field as an empty struct.
    tags = {_FIRST_TAG: b"\x00" if value.classic is None else _classic(value.classic)}
    return b"".join((
        _VERSION,
        compact_string(value.instance_id),
        compact_string(value.rack_id),
        compact_string(value.client_id),
        compact_string(value.client_host),
        compact_array(compact_string(topic) for topic in value.topics),
        compact_string(value.pattern),
        INT32.pack(value.rebalance_timeout_ms),
        compact_string(value.assignor),
        tagged_fields(tags),
    ))  # fmt: skip


def _classic(value: ClassicMetadata) -> bytes:
    """Encode a nullable struct; its first byte marks it as present."""
    protocols = compact_array(
        compact_string(name) + compact_bytes(metadata) + NO_TAGS
        for name, metadata in value.protocols
    )
    return b"\x01" + INT32.pack(value.session_timeout_ms) + protocols + NO_TAGS


def encode_target_epoch(value: TargetEpoch) -> bytes:
    known = value.timestamp_ms != NO_TIMESTAMP
    tags = {_FIRST_TAG: INT64.pack(value.timestamp_ms)} if known else {}
    return _VERSION + INT32.pack(value.epoch) + tagged_fields(tags)


def encode_current(value: CurrentAssignment) -> bytes:
    return b"".join((
        _VERSION,
        INT32.pack(value.epoch),
        INT32.pack(value.previous_epoch),
        INT8.pack(value.state),
        _assignment(value.assigned),
        _assignment(value.pending_revocation),
        NO_TAGS,
    ))  # fmt: skip


def encode_pattern(value: ResolvedPattern) -> bytes:
    return b"".join((
        _VERSION,
        compact_array(compact_string(topic) for topic in value.topics),
        INT64.pack(value.metadata_version),
        INT64.pack(value.timestamp_ms),
        NO_TAGS,
    ))  # fmt: skip


def _assignment(value: Assignment) -> bytes:
    return compact_array(
        topic_id + compact_array(INT32.pack(each) for each in sorted(partitions)) + NO_TAGS
        for topic_id, partitions in value.items()
    )


# -------------------------------------------------------------------------------------- decoding


def decode_consumer_record(
    kind: int, key: RecordReader, value: bytes | None
) -> ConsumerRecord | None:
    """Decode a record of a consumer group.

    Args:
        kind: The kind of record, read from the key.
        key: The rest of the key.
        value: The record's value, or None for a tombstone.

    Returns:
        The record, or None if the kind is unknown.
    """
    match kind:
        case 3:
            return GroupEpochRecord(key.string(), _read(value, _read_group_epoch))
        case 4:
            return SubscriptionMetadataRecord(key.string(), value)
        case 5:
            return MemberRecord(key.string(), key.string(), _read(value, _read_member))
        case 6:
            return TargetEpochRecord(key.string(), _read(value, _read_target_epoch))
        case 7:
            return TargetRecord(key.string(), key.string(), _read(value, _read_assignment))
        case 8:
            return CurrentRecord(key.string(), key.string(), _read(value, _read_current))
        case 16:
            return PatternRecord(key.string(), key.string(), _read(value, _read_pattern))
    return None


def _read(value: bytes | None, read: Callable[[RecordReader], T]) -> T | None:
    if value is None:
        return None
    reader = RecordReader(value)
    reader.version(last=0, first_flexible=0)
    decoded = read(reader)
    reader.tagged_fields()
    return decoded


def _read_group_epoch(reader: RecordReader) -> GroupEpoch:
    epoch = reader.int32()
    return GroupEpoch(epoch, _read_tagged_int64(reader, NO_HASH))


def _read_tagged_int64(reader: RecordReader, default: int) -> int:
    """Return the first tagged field without consuming the tagged fields."""
    data = reader.peek_tagged_fields().get(_FIRST_TAG)
    return default if data is None else int(INT64.unpack(data)[0])


def _read_member(reader: RecordReader) -> MemberMetadata:
    member = MemberMetadata(
        instance_id=reader.nullable_string(),
        rack_id=reader.nullable_string(),
        client_id=reader.string(),
        client_host=reader.string(),
        topics=tuple(sorted(set(reader.array(reader.string)))),
        pattern=reader.nullable_string(),
        rebalance_timeout_ms=reader.int32(),
        assignor=reader.nullable_string(),
    )
    classic = reader.peek_tagged_fields().get(_FIRST_TAG)
    if classic is None or classic[:1] != b"\x01":
        return member
    return member._replace(classic=_read_classic(RecordReader(classic[1:], flexible=True)))


def _read_classic(reader: RecordReader) -> ClassicMetadata:
    def protocol() -> tuple[str, bytes]:
        name, metadata = reader.string(), reader.blob()
        reader.tagged_fields()
        return name, metadata

    return ClassicMetadata(reader.int32(), reader.array(protocol))


def _read_target_epoch(reader: RecordReader) -> TargetEpoch:
    epoch = reader.int32()
    return TargetEpoch(epoch, _read_tagged_int64(reader, NO_TIMESTAMP))


def _read_assignment(reader: RecordReader) -> Assignment:
    def topic() -> tuple[bytes, frozenset[int]]:
        topic_id, partitions = reader.uuid(), frozenset(reader.array(reader.int32))
        reader.tagged_fields()
        return topic_id, partitions

    return {topic_id: partitions for topic_id, partitions in reader.array(topic) if partitions}


def _read_current(reader: RecordReader) -> CurrentAssignment:
    return CurrentAssignment(
        epoch=reader.int32(),
        previous_epoch=reader.int32(),
        state=reader.int8(),
        assigned=_read_assignment(reader),
        pending_revocation=_read_assignment(reader),
    )


def _read_pattern(reader: RecordReader) -> ResolvedPattern:
    return ResolvedPattern(reader.array(reader.string), reader.int64(), reader.int64())
