"""Records of the offsets topic, byte for byte as Apache Kafka writes them.

A key starts with an int16 that identifies the kind of record, a value with an int16 version. A
record without a value is a tombstone: it deletes the object that the key identifies.

    key 0, 1  committed offset   group, topic: string; partition: int32
    key 2     classic group      group: string

    offset value     0   1   2   3   4      group value              0   1   2   3   4
      offset: int64      x   x   x   x   x        protocol type: string    x   x   x   x   x
      leader epoch: int32            x   x        generation: int32        x   x   x   x   x
      metadata: string   x   x   x   x   x        protocol: string?        x   x   x   x   x
      commit time: int64 x   x   x   x   x        leader: string?          x   x   x   x   x
      expire time: int64     x                    state time: int64                x   x   x
      topic id: tag 0                    x        members: array           x   x   x   x   x
                                            member
      Up to version 3, strings have int16     id: string                   x   x   x   x   x
      lengths, bytes and arrays int32         instance id: string?                     x   x
      lengths. Version 4 has varint           client id, host: string      x   x   x   x   x
      lengths plus one, and tagged fields     rebalance timeout: int32         x   x   x   x
      at the end of each struct.              session timeout: int32       x   x   x   x   x
                                              subscription: bytes          x   x   x   x   x
                                              assignment: bytes            x   x   x   x   x

Like Kafka 4, this writes offsets in version 4, or 1 if they have an expire time, and groups in
version 3. All versions are read. Key kinds 3 to 8 and 16 belong to consumer groups, see
consumer_records.py; all others belong to kinds of groups that are not supported here.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ottla.base.types import ZERO_UUID
from ottla.core.group.consumer_records import (
    ConsumerRecord,
    decode_consumer_record,
    encode_consumer_record,
)
from ottla.core.record_fields import (
    INT16,
    INT32,
    INT64,
    RecordReader,
    key_bytes,
    key_string,
    nullable_key_string,
)
from ottla.wire.compile import encode_uvarint

OFFSET_KEYS = (0, 1)
OFFSET_KEY = 1
GROUP_KEY = 2
OFFSET_VERSION = 4
OFFSET_VERSION_WITH_EXPIRY = 1
GROUP_VERSION = 3
LAST_VERSION = 4
FLEXIBLE_VERSION = 4
TOPIC_ID_TAG = 0
NO_TIMESTAMP = -1
NO_EPOCH = -1
MAX_REMEMBERED_KEYS = 16_384

_OFFSET_HEAD = struct.Struct(">hqi")


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1
    """The record's offset in the offsets topic; not part of the record."""


class OffsetRecord(NamedTuple):
    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class MemberMetadata(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    protocol_type: str
    """The protocol type; empty if the group has none, because it only commits offsets."""
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


class GroupRecord(NamedTuple):
    group_id: str
    value: GroupMetadata | None


GroupTopicRecord: TypeAlias = OffsetRecord | GroupRecord | ConsumerRecord


def encode_record(record: GroupTopicRecord) -> tuple[bytes, bytes | None]:
    if isinstance(record, OffsetRecord):
        key = _offset_key(record.group_id, record.topic, record.partition)
        return key, None if record.value is None else encode_offset(record.value)
    if not isinstance(record, GroupRecord):
        return encode_consumer_record(record)
    key = INT16.pack(GROUP_KEY) + key_string(record.group_id)
    return key, None if record.value is None else encode_group(record.value)


def decode_record(key: bytes, value: bytes | None) -> GroupTopicRecord | None:
    """Decode a record of the offsets topic.

    Returns:
        The record, or None if its kind is unknown.

    Raises:
        ValueError: The record is malformed.
    """
    try:
        reader = RecordReader(key)
        kind = reader.int16()
        if kind in OFFSET_KEYS:
            group_id, topic, partition = reader.string(), reader.string(), reader.int32()
            decoded = None if value is None else decode_offset(value)
            return OffsetRecord(group_id, topic, partition, decoded)
        if kind == GROUP_KEY:
            group_id = reader.string()
            return GroupRecord(group_id, None if value is None else decode_group(value))
        return decode_consumer_record(kind, reader, value)
    except (struct.error, IndexError) as error:
        raise ValueError(f"a record of the offsets topic ends too early: {error}") from None


@lru_cache(maxsize=MAX_REMEMBERED_KEYS)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    names = key_string(group_id) + key_string(topic)
    return INT16.pack(OFFSET_KEY) + names + INT32.pack(partition)


# ------------------------------------------------------------------------------------- offsets


def encode_offset(value: CommittedOffset) -> bytes:
    metadata = value.metadata.encode()
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return b"".join((
            INT16.pack(OFFSET_VERSION_WITH_EXPIRY), INT64.pack(value.offset),
            INT16.pack(len(metadata)), metadata,
            INT64.pack(value.commit_timestamp_ms), INT64.pack(value.expire_timestamp_ms),
        ))  # fmt: skip
    tagged = b"\x00"
    if value.topic_id != ZERO_UUID:
        tagged = bytes((1, TOPIC_ID_TAG, len(value.topic_id))) + value.topic_id
    return b"".join((
        _OFFSET_HEAD.pack(OFFSET_VERSION, value.offset, value.leader_epoch),
        encode_uvarint(len(metadata) + 1), metadata,
        INT64.pack(value.commit_timestamp_ms), tagged,
    ))  # fmt: skip


def decode_offset(data: bytes) -> CommittedOffset:
    reader = RecordReader(data)
    version = reader.version(LAST_VERSION, FLEXIBLE_VERSION)
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else NO_TIMESTAMP
    topic_id = reader.tagged_fields().get(TOPIC_ID_TAG, ZERO_UUID)
    if len(topic_id) != len(ZERO_UUID):
        raise ValueError(f"a topic id has {len(topic_id)} bytes")
    return CommittedOffset(
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id
    )


# -------------------------------------------------------------------------------------- groups


def encode_group(value: GroupMetadata) -> bytes:
    parts = [
        INT16.pack(GROUP_VERSION),
        key_string(value.protocol_type),
        INT32.pack(value.generation),
        nullable_key_string(value.protocol_name),
        nullable_key_string(value.leader_id),
        INT64.pack(value.state_timestamp_ms),
        INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            key_string(member.member_id),
            nullable_key_string(member.instance_id),
            key_string(member.client_id),
            key_string(member.client_host),
            INT32.pack(member.rebalance_timeout_ms),
            INT32.pack(member.session_timeout_ms),
            key_bytes(member.subscription),
            key_bytes(member.assignment),
        )
    return b"".join(parts)


def decode_group(data: bytes) -> GroupMetadata:
    reader = RecordReader(data)
    version = reader.version(LAST_VERSION, FLEXIBLE_VERSION)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol_name = reader.nullable_string()
    leader_id = reader.nullable_string()
    state_timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_read_member(reader, version) for _ in range(reader.array_length()))
    reader.tagged_fields()
    return GroupMetadata(
        protocol_type, generation, protocol_name, leader_id, state_timestamp_ms, members
    )


def _read_member(reader: RecordReader, version: int) -> MemberMetadata:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.blob(), reader.blob()
    reader.tagged_fields()
    if rebalance_timeout_ms == -1:
        rebalance_timeout_ms = session_timeout_ms
    return MemberMetadata(
        member_id, instance_id, client_id, client_host,
        rebalance_timeout_ms, session_timeout_ms, subscription, assignment,
    )  # fmt: skip
