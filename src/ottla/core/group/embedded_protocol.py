"""The embedded consumer protocol, which classic members exchange through the coordinator.

Assignment is up to the clients, but the format of the `consumer` protocol is Kafka's own: strings
have int16 lengths, bytes and arrays have int32 lengths, and -1 means null. Newer versions only
append fields.

    subscription                                    since   assignment                       since
      version: int16                                          version: int16
      topics: array of string                       0         partitions: array of           0
      user data: bytes?                             0           topic: string
      owned: array of                               1           partitions: array of int32
        topic: string, partitions: array of int32             user data: bytes?              0
      generation: int32                             2
      rack: string?                                 3

The coordinator reads it to find a group's topics, and when a group migrates to the consumer
protocol or back.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ottla.core.record_fields import INT16, INT32, RecordReader, key_string

T = TypeVar("T")

CONSUMER_PROTOCOL_TYPE = "consumer"
LAST_ASSIGNMENT_VERSION = 3
_NULL_BYTES = b"\xff\xff\xff\xff"


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None


def subscribed_topics(metadata: bytes) -> list[str]:
    """Return the topics of a subscription.

    Raises:
        ValueError: The metadata is not a subscription of the consumer protocol.
    """
    return list(_checked(_read_topics, metadata))


def read_subscription(metadata: bytes) -> Subscription:
    """Decode a subscription.

    Raises:
        ValueError: The metadata is not a subscription of the consumer protocol.
    """
    return _checked(_read_subscription, metadata)


class MemberAssignment(NamedTuple):
    partitions: Mapping[str, frozenset[int]]
    user_data: bytes | None


def read_assignment(data: bytes) -> MemberAssignment:
    """Decode an assignment; empty bytes are an empty assignment.

    Raises:
        ValueError: The data is not an assignment of the consumer protocol.
    """
    return _checked(_read_assignment, data) if data else MemberAssignment({}, None)


def write_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    """Encode an assignment in the member's version, or the latest known one if that is lower."""
    parts = [
        INT16.pack(min(version, LAST_ASSIGNMENT_VERSION)),
        INT32.pack(len(partitions)),
    ]
    for topic, numbers in partitions.items():
        ordered = sorted(numbers)
        parts += (key_string(topic), INT32.pack(len(ordered)), *map(INT32.pack, ordered))
    return b"".join((*parts, _NULL_BYTES))


def _checked(read: Callable[[RecordReader], T], data: bytes) -> T:
    try:
        return read(RecordReader(data))
    except (struct.error, IndexError) as error:
        raise ValueError(str(error)) from None


def _read_version(reader: RecordReader) -> int:
    version = reader.int16()
    if version < 0:
        raise ValueError(f"version {version}")
    return version


def _read_topics(reader: RecordReader) -> tuple[str, ...]:
    _read_version(reader)
    return reader.array(reader.string)


def _read_subscription(reader: RecordReader) -> Subscription:
    version = _read_version(reader)
    topics = reader.array(reader.string)
    reader.nullable_blob()
    owned = _read_partitions(reader) if version >= 1 else {}
    if version >= 2:
        reader.int32()
    return Subscription(version, topics, owned, reader.nullable_string() if version >= 3 else None)


def _read_assignment(reader: RecordReader) -> MemberAssignment:
    _read_version(reader)
    return MemberAssignment(_read_partitions(reader), reader.nullable_blob())


def _read_partitions(reader: RecordReader) -> Mapping[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for _ in range(reader.array_length()):
        topic = reader.string()
        found[topic] = found.get(topic, frozenset()) | frozenset(reader.array(reader.int32))
    return found
