"""Metadata that members of classic groups exchange, in Kafka's formats (pure).

Subscription, from each member to the leader, one per assignor:
    version (int16), topics (array of string), userData (nullable bytes),
    v1: ownedPartitions (array of topic: string, partitions: array of int32),
    v2: generationId (int32, -1 if none), v3: rackId (nullable string)
Assignment, from the leader to each member:
    version (int16), assignedPartitions (as above), userData (nullable bytes)
userData of `sticky`: the member's previous partitions (array as above), generation (int32).
userData of `cooperative-sticky`: generation (int32).

Newer versions only append fields. A reader therefore ignores trailing bytes, and treats a message
that ends early as an older version. Any other malformed message raises ValueError."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.consumer.offsets import by_topic

NEWEST_SUBSCRIPTION = 3
NEWEST_ASSIGNMENT = 3
MAX_ELEMENTS = 1_000_000
NO_GENERATION = -1


class MemberSubscription(NamedTuple):
    """Subscription that a member sent to the leader."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    """Generation in which the member owned these partitions."""
    instance_id: str | None = None
    user_data: bytes | None = None
    rack_id: str | None = None


def encode_subscription(
    topics: Iterable[str],
    owned: Iterable[TopicPartition] = (),
    generation: int = NO_GENERATION,
    user_data: bytes | None = None,
    rack_id: str | None = None,
) -> bytes:
    names = sorted(topics)
    return b"".join(
        (
            struct.pack(">hi", NEWEST_SUBSCRIPTION, len(names)),
            *map(_string, names),
            _bytes(user_data),
            encode_partitions(owned),
            struct.pack(">i", generation),
            b"\xff\xff" if rack_id is None else _string(rack_id),
        )
    )


def decode_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    reader = _Reader(data)
    version = reader.int16()
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = reader.bytes()
    owned: tuple[TopicPartition, ...] = ()
    generation, rack_id = NO_GENERATION, None
    if version >= 1 and not reader.is_at_end:
        owned = reader.partitions()
    if version >= 2 and not reader.is_at_end:
        generation = reader.int32()
    if version >= 3 and not reader.is_at_end:
        rack_id = reader.nullable_string()
    return MemberSubscription(topics, owned, generation, instance_id, user_data, rack_id)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    return struct.pack(">h", NEWEST_ASSIGNMENT) + encode_partitions(partitions) + _bytes(None)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the assigned partitions; empty bytes mean that there are none."""
    if not data:
        return ()
    reader = _Reader(data)
    reader.int16()
    return reader.partitions()


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics = by_topic(partitions)
    pieces = [struct.pack(">i", len(topics))]
    for topic, numbers in topics:
        pieces.append(_string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(pieces)


def encode_sticky_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    return encode_partitions(owned) + struct.pack(">i", generation)


def decode_sticky_data(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    if not data:
        return (), NO_GENERATION
    reader = _Reader(data)
    owned = reader.partitions()
    return owned, NO_GENERATION if reader.is_at_end else reader.int32()


def encode_generation(generation: int) -> bytes:
    return struct.pack(">i", generation)


def decode_generation(data: bytes | None) -> int:
    return struct.unpack_from(">i", data)[0] if data and len(data) >= 4 else NO_GENERATION


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _bytes(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else struct.pack(">i", len(data)) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if size < 0 or len(taken) != size:
            raise ValueError("the metadata of a group member is truncated")
        self._at += size
        return taken

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def count(self) -> int:
        found = self.int32()
        if not 0 <= found <= min(MAX_ELEMENTS, len(self._data)):
            raise ValueError(f"the metadata of a group member contains an invalid count: {found}")
        return found

    def string(self) -> str:
        return self._take(self.int16()).decode("utf-8")

    def nullable_string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self._take(size).decode("utf-8")

    def bytes(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self._take(size)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)
