"""What consumers of the classic protocol tell one another, through the coordinator.

Assignors are the clients' business, but the embedded consumer protocol is Kafka's own: strings have
int16 lengths, bytes and arrays int32 lengths, -1 for null. Newer versions only add to the end.

    subscription                                    since   assignment                       since
      version: int16                                          version: int16
      topics: array of string                       0         partitions: array of           0
      user data: bytes?                             0           topic: string
      owned: array of                               1           partitions: array of int32
        topic: string, partitions: array of int32             user data: bytes?              0
      generation: int32                             2
      rack: string?                                 3

The coordinator looks into it to know which topics matter to a group, and when a group changes to
the consumer protocol or back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ottla.core.group.record_fields import INT16, INT32, Reader, key_string

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
    """ValueError if the metadata is not a consumer's."""
    return list(_checked(_read_topics, metadata))


def read_subscription(metadata: bytes) -> Subscription:
    """ValueError if the metadata is not a consumer's."""
    return _checked(_read_subscription, metadata)


class GivenAssignment(NamedTuple):
    partitions: Mapping[str, frozenset[int]]
    user_data: bytes | None


def read_assignment(data: bytes) -> GivenAssignment:
    """Nothing for a member that was assigned nothing. ValueError if it is not a consumer's."""
    return _checked(_read_assignment, data) if data else GivenAssignment({}, None)


def write_assignment(version: int, partitions: Mapping[str, Iterable[int]]) -> bytes:
    parts = [
        INT16.pack(min(version, LAST_ASSIGNMENT_VERSION)),
        INT32.pack(len(partitions)),
    ]
    for topic, numbers in partitions.items():
        ordered = sorted(numbers)
        parts += (key_string(topic), INT32.pack(len(ordered)), *map(INT32.pack, ordered))
    return b"".join((*parts, _NULL_BYTES))


def _checked(read: Callable[[Reader], T], data: bytes) -> T:
    try:
        return read(Reader(data))
    except (struct.error, IndexError) as error:
        raise ValueError(str(error)) from None


def _read_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise ValueError(f"version {version}")
    return version


def _read_topics(reader: Reader) -> tuple[str, ...]:
    _read_version(reader)
    return reader.array(reader.string)


def _read_subscription(reader: Reader) -> Subscription:
    version = _read_version(reader)
    topics = reader.array(reader.string)
    reader.nullable_blob()
    owned = _read_partitions(reader) if version >= 1 else {}
    if version >= 2:
        reader.int32()
    return Subscription(version, topics, owned, reader.nullable_string() if version >= 3 else None)


def _read_assignment(reader: Reader) -> GivenAssignment:
    _read_version(reader)
    return GivenAssignment(_read_partitions(reader), reader.nullable_blob())


def _read_partitions(reader: Reader) -> Mapping[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for _ in range(reader.array_length()):
        topic = reader.string()
        found[topic] = found.get(topic, frozenset()) | frozenset(reader.array(reader.int32))
    return found
