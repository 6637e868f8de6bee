"""Records of the transaction topic, byte for byte as Apache Kafka writes them.

    key     version int16 (0), transactional id: string
    value                                   0   1
      version: int16                        x   x
      producer id: int64                    x   x
      producer epoch: int16                 x   x
      transaction timeout, ms: int32        x   x
      state: int8                           x   x
      partitions: [topic: string,           x   x      null while there is no transaction
                   [partition: int32]]?
      last update, ms: int64                x   x
      start, ms: int64                      x   x      -1 if there has been no transaction
      previous producer id: tag 0, int64        x
      next producer id: tag 1, int64            x      the successor once the epochs are used up
      client's transaction version: tag 2, int16    x

In version 0, strings have int16 lengths and arrays int32 lengths. In version 1, lengths are varints
plus one, and each struct ends with its tagged fields. This writes version 1, as Kafka does from
`transaction.version` 1 on, and reads both. A record without a value is a tombstone: the
transactional id has expired.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.core.record_fields import (
    INT16,
    INT32,
    INT64,
    NO_TAGS,
    RecordReader,
    compact_array,
    compact_string,
    key_string,
)

KEY_VERSION = 0
VALUE_VERSION = 1
NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1

_PREVIOUS_ID_TAG, _NEXT_ID_TAG, _CLIENT_VERSION_TAG = 0, 1, 2
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_TAGGED_INT64 = struct.Struct(">BBq")
_TAGGED_INT16 = struct.Struct(">BBh")
MAX_REMEMBERED = 4_096


class TransactionState(IntEnum):
    """Transaction states, with their numbers in records. machine.py explains them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that Kafka's tools use, such as PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Transaction(NamedTuple):
    """The state of a transactional id."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    """Transaction version; in 2, the end of a transaction bumps the epoch (KIP-890)."""
    last_producer_epoch: int = NO_EPOCH
    """The previous epoch, if the same producer had it. Not part of the record."""


class TransactionRecord(NamedTuple):
    transactional_id: str
    value: Transaction | None


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    key = _key(record.transactional_id)
    return key, None if record.value is None else encode_value(record.value)


@lru_cache(maxsize=MAX_REMEMBERED)
def _key(transactional_id: str) -> bytes:
    return INT16.pack(KEY_VERSION) + key_string(transactional_id)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Decode a record of the transaction topic.

    Returns:
        The record, or None if its kind is unknown.

    Raises:
        ValueError: The record is malformed.
    """
    try:
        reader = RecordReader(key)
        if reader.int16() != KEY_VERSION:
            return None
        transactional_id = reader.string()
        return TransactionRecord(transactional_id, None if value is None else decode_value(value))
    except (struct.error, IndexError) as error:
        raise ValueError(f"a record of the transaction topic ends too early: {error}") from None


def encode_value(value: Transaction) -> bytes:
    parts = [
        _HEAD.pack(
            VALUE_VERSION,
            value.producer_id,
            value.producer_epoch,
            value.timeout_ms,
            value.state,
        )
    ]
    if value.state is TransactionState.EMPTY:
        parts.append(b"\x00")
    else:
        parts.append(_encode_partitions(value.partitions))
    parts.append(_TIMES.pack(value.last_update_ms, value.start_ms))
    tagged = []
    if value.previous_producer_id >= 0:
        tagged.append(_TAGGED_INT64.pack(_PREVIOUS_ID_TAG, 8, value.previous_producer_id))
    if value.next_producer_id >= 0:
        tagged.append(_TAGGED_INT64.pack(_NEXT_ID_TAG, 8, value.next_producer_id))
    if value.client_version:
        tagged.append(_TAGGED_INT16.pack(_CLIENT_VERSION_TAG, 2, value.client_version))
    parts.append(bytes((len(tagged),)))
    parts += tagged
    return b"".join(parts)


@lru_cache(maxsize=MAX_REMEMBERED)
def _encode_partitions(partitions: frozenset[TopicPartition]) -> bytes:
    # Cached, because most producers write to the same partitions in every transaction.
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return compact_array(
        compact_string(topic) + compact_array(map(INT32.pack, indexes)) + NO_TAGS
        for topic, indexes in topics.items()
    )


def decode_value(data: bytes) -> Transaction:
    reader = RecordReader(data)
    reader.version(VALUE_VERSION, first_flexible=1)
    producer_id, producer_epoch = reader.int64(), reader.int16()
    timeout_ms = reader.int32()
    state = TransactionState(reader.int8())
    topics = reader.nullable_array(lambda: _read_topic(reader)) or ()
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tagged_fields()

    def tagged(tag: int, kind: struct.Struct, default: int) -> int:
        if tag not in tags:
            return default
        number: int = kind.unpack(tags[tag])[0]
        return number

    return Transaction(
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        frozenset(chain.from_iterable(topics)),
        last_update_ms,
        start_ms,
        tagged(_PREVIOUS_ID_TAG, INT64, NO_PRODUCER_ID),
        tagged(_NEXT_ID_TAG, INT64, NO_PRODUCER_ID),
        tagged(_CLIENT_VERSION_TAG, INT16, 0),
    )


def _read_topic(reader: RecordReader) -> list[TopicPartition]:
    topic = reader.string()
    partitions = [TopicPartition(topic, index) for index in reader.array(reader.int32)]
    reader.tagged_fields()
    return partitions
