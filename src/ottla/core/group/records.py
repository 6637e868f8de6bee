"""The records of the offsets topic, byte for byte as Apache Kafka writes them.

A key begins with an int16 that names its kind; a value with an int16 version. No value: a
tombstone, the thing named by the key is gone.

    key 0, 1  committed offset   group, topic: string; partition: int32
    key 2     classic group      group: string

    offset value     0   1   2   3   4      group value              0   1   2   3   4
      offset: int64      x   x   x   x   x        protocol type: string    x   x   x   x   x
      leader epoch: int32            x   x        generation: int32        x   x   x   x   x
      metadata: string   x   x   x   x   x        protocol: string?        x   x   x   x   x
      commit time: int64 x   x   x   x   x        leader: string?          x   x   x   x   x
      expire time: int64     x                    state time: int64                x   x   x
      topic id: tag 0                    x        members: array           x   x   x   x   x
                                            a member
      Versions up to 3 have int16 lengths     id: string                   x   x   x   x   x
      of strings and int32 lengths of         instance id: string?                     x   x
      bytes and arrays; version 4 has         client id, host: string      x   x   x   x   x
      varint lengths plus one, and tagged     rebalance timeout: int32         x   x   x   x
      fields at the end of each struct.       session timeout: int32       x   x   x   x   x
                                              subscription: bytes          x   x   x   x   x
                                              assignment: bytes            x   x   x   x   x

Kafka 4 writes offsets in version 4, or 1 where they have an expire time of their own, and groups in
version 3; so do we. We read them all. Key kinds 3 and up belong to newer group protocols."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ottla.base.types import ZERO_UUID
from ottla.wire.compile import decode_uvarint, encode_uvarint

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

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_HEAD = struct.Struct(">hqi")


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1
    """Where the record lies in the offsets topic; not part of it."""


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
    """Empty: none, as of a group that only commits offsets."""
    generation: int
    protocol_name: str | None
    leader_id: str | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


class GroupRecord(NamedTuple):
    group_id: str
    value: GroupMetadata | None


GroupTopicRecord: TypeAlias = OffsetRecord | GroupRecord


def encode_record(record: GroupTopicRecord) -> tuple[bytes, bytes | None]:
    if isinstance(record, OffsetRecord):
        key = _offset_key(record.group_id, record.topic, record.partition)
        return key, None if record.value is None else encode_offset(record.value)
    key = _INT16.pack(GROUP_KEY) + _string(record.group_id)
    return key, None if record.value is None else encode_group(record.value)


def decode_record(key: bytes, value: bytes | None) -> GroupTopicRecord | None:
    """None for a kind that is not known here. ValueError: it is malformed."""
    try:
        reader = _Reader(key)
        kind = reader.int16()
        if kind in OFFSET_KEYS:
            group_id, topic, partition = reader.string(), reader.string(), reader.int32()
            decoded = None if value is None else decode_offset(value)
            return OffsetRecord(group_id, topic, partition, decoded)
        if kind == GROUP_KEY:
            group_id = reader.string()
            return GroupRecord(group_id, None if value is None else decode_group(value))
        return None
    except (struct.error, IndexError) as error:
        raise ValueError(f"a record of the offsets topic ends too early: {error}") from None


@lru_cache(maxsize=MAX_REMEMBERED_KEYS)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    names = _string(group_id) + _string(topic)
    return _INT16.pack(OFFSET_KEY) + names + _INT32.pack(partition)


# ------------------------------------------------------------------------------------- offsets


def encode_offset(value: CommittedOffset) -> bytes:
    metadata = value.metadata.encode()
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return b"".join((
            _INT16.pack(OFFSET_VERSION_WITH_EXPIRY), _INT64.pack(value.offset),
            _INT16.pack(len(metadata)), metadata,
            _INT64.pack(value.commit_timestamp_ms), _INT64.pack(value.expire_timestamp_ms),
        ))  # fmt: skip
    tagged = b"\x00"
    if value.topic_id != ZERO_UUID:
        tagged = bytes((1, TOPIC_ID_TAG, len(value.topic_id))) + value.topic_id
    return b"".join((
        _OFFSET_HEAD.pack(OFFSET_VERSION, value.offset, value.leader_epoch),
        encode_uvarint(len(metadata) + 1), metadata,
        _INT64.pack(value.commit_timestamp_ms), tagged,
    ))  # fmt: skip


def decode_offset(data: bytes) -> CommittedOffset:
    reader = _Reader(data)
    version = reader.version()
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
        _INT16.pack(GROUP_VERSION),
        _string(value.protocol_type),
        _INT32.pack(value.generation),
        _nullable_string(value.protocol_name),
        _nullable_string(value.leader_id),
        _INT64.pack(value.state_timestamp_ms),
        _INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _nullable_string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


def decode_group(data: bytes) -> GroupMetadata:
    reader = _Reader(data)
    version = reader.version()
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


def _read_member(reader: _Reader, version: int) -> MemberMetadata:
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


# --------------------------------------------------------------------------------------- parts


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _nullable_string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else _string(text)


def _bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


class _Reader:
    """Reads a key, or a value once `version` was read. Raises struct.error, IndexError or
    ValueError where the bytes are not what they should be."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0
        self._flexible = False

    def version(self) -> int:
        version = self.int16()
        if not 0 <= version <= LAST_VERSION:
            raise ValueError(f"version {version} of a record is not known")
        self._flexible = version >= FLEXIBLE_VERSION
        return version

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def _number(self, kind: struct.Struct) -> int:
        value: int = kind.unpack_from(self._data, self._position)[0]
        self._position += kind.size
        return value

    def _uvarint(self) -> int:
        value, self._position = decode_uvarint(self._data, self._position)
        return value

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError("a string that must be there is null")
        return text

    def nullable_string(self) -> str | None:
        size = self._uvarint() - 1 if self._flexible else self.int16()
        return None if size < 0 else str(self._take(size), "utf-8")

    def blob(self) -> bytes:
        return bytes(self._take(self._uvarint() - 1 if self._flexible else self.int32()))

    def array_length(self) -> int:
        length = self._uvarint() - 1 if self._flexible else self.int32()
        if not 0 <= length <= len(self._data):
            raise ValueError(f"an array claims {length} elements")
        return length

    def tagged_fields(self) -> dict[int, bytes]:
        if not self._flexible:
            return {}
        fields = {}
        for _ in range(self._uvarint()):
            tag = self._uvarint()
            fields[tag] = bytes(self._take(self._uvarint()))
        return fields

    def _take(self, size: int) -> memoryview:
        start, end = self._position, self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"a field of {size} bytes does not fit into the record")
        self._position = end
        return self._data[start:end]
