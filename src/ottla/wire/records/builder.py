"""Construction of batches from records, for internal topics, control markers, clients and tests.

A control batch holds one record that consumers never see. Its key is (version int16, type int16).
The value of an end-of-transaction marker is (version int16, coordinator epoch int32).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ottla.base.errors import ErrorCode
from ottla.wire.records.batch import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    HEADER_STRUCT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    seal,
)
from ottla.wire.records.compression import codec_id, compress
from ottla.wire.records.crc import Buffer
from ottla.wire.records.errors import CorruptBatch
from ottla.wire.records.record import BatchRecord, Header, iter_records
from ottla.wire.records.varint import VARINTS

RecordFields: TypeAlias = tuple[bytes | None, bytes | None, Iterable[Header], int]
"""Key, value, headers and timestamp (ms) of a record without an offset."""

_MAX_INT32 = 0x7FFFFFFF
_CONTROL_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")
_CONTROL_VERSION = 0


class ControlType(IntEnum):
    """Types of control batches, as in the key of their record."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The marker that ends a transaction of a producer in one partition."""

    commit: bool
    coordinator_epoch: int


def build_batch(
    records: Iterable[BatchRecord | RecordFields],
    *,
    base_offset: int = 0,
    compression: int | str = "none",
    level: int | None = None,
    timestamp_type: int = 0,
    append_time: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    preserve_offsets: bool = False,
    last_offset: int | None = None,
    delete_horizon: int | None = None,
) -> bytes:
    """Build one batch of `records`, numbered from `base_offset`.

    Args:
        records: The records.
        base_offset: Offset of the first record.
        compression: ID or name of the codec.
        level: Compression level, or None for the default of the codec.
        timestamp_type: 0 for CreateTime, 1 for LogAppendTime.
        append_time: maxTimestamp of a batch with LogAppendTime; by default the time of the newest
            record.
        producer_id: Producer ID, or -1.
        producer_epoch: Producer epoch, or -1.
        base_sequence: Sequence of the first record, or -1.
        leader_epoch: Leader epoch, or -1.
        transactional: Whether the batch is part of a transaction.
        control: Whether this is a control batch.
        preserve_offsets: Whether each `Record` keeps its own offset. They must increase.
        last_offset: Last offset of the batch, which may then span more offsets than it has records.
        delete_horizon: Delete horizon to set, in ms.

    Raises:
        ValueError: The offsets do not increase, or a batch cannot span them.
    """
    fields = [_fields(record) for record in records]
    offsets = _offsets(fields, base_offset, preserve_offsets)
    last = last_offset if last_offset is not None else max(offsets, default=base_offset - 1)
    if not (offsets or last_offset is not None) or not 0 <= last - base_offset <= _MAX_INT32:
        raise ValueError(f"a batch cannot span the offsets {base_offset} to {last}")
    times = [timestamp for _, timestamp, *_ in fields]
    base_timestamp = times[0] if times else -1
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    newest = append_time if timestamp_type and append_time is not None else max(times, default=-1)
    section = b"".join(
        [
            encode_record(offset - base_offset, timestamp - base_timestamp, key, value, headers)
            for offset, (_, timestamp, key, value, headers) in zip(offsets, fields, strict=True)
        ]
    )
    codec = codec_id(compression) if isinstance(compression, str) else compression
    attributes = (
        codec
        | (APPEND_TIME_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon is not None else 0)
    )
    batch = bytearray(HEADER_STRUCT.pack(
        base_offset, 0, leader_epoch, MAGIC, 0, attributes, last - base_offset,
        base_timestamp, newest, producer_id, producer_epoch, base_sequence, len(fields),
    ))  # fmt: skip
    batch += compress(codec, section, level) if codec else section
    return bytes(seal(batch))


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header] = (),
) -> bytes:
    """Encode one record of an uncompressed batch."""
    varints = VARINTS
    body = b"".join((
        b"\0",
        varints[timestamp_delta],
        varints[offset_delta],
        varints[-1 if key is None else len(key)],
        key or b"",
        varints[-1 if value is None else len(value)],
        value or b"",
        _encode_headers(headers) if headers else b"\0",
    ))  # fmt: skip
    return varints[len(body)] + body


class BatchBuilder:
    """A batch to which records are added one by one until it is full.

    Invariant: `size` is the uncompressed size of the batch so far. It exceeds `max_size` only if
    the batch holds a single, larger record.
    """

    __slots__ = ("max_size", "size", "record_count", "max_timestamp", "_base_timestamp", "_records")

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self.size = HEADER_SIZE
        self.record_count = 0
        self.max_timestamp = -1
        self._base_timestamp = -1
        self._records: list[bytes] = []

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Sequence[Header] = (),
    ) -> bool:
        """Add a record. Return False, without adding it, if there is no room."""
        count = self.record_count
        if not count:
            self._base_timestamp = self.max_timestamp = timestamp
        record = encode_record(count, timestamp - self._base_timestamp, key, value, headers)
        size = self.size + len(record)
        if size > self.max_size and count:
            return False
        self.size = size
        self.record_count = count + 1
        self._records.append(record)
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return True

    def build(
        self,
        *,
        compression: int | str = "none",
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytearray:
        """Return the batch. Its producer can be changed later with `stamp_producer`.

        Raises:
            ValueError: No record was added.
        """
        count = self.record_count
        if not count:
            raise ValueError("a batch must contain at least one record")
        codec = codec_id(compression) if isinstance(compression, str) else compression
        attributes = codec | (TRANSACTIONAL_BIT if transactional else 0)
        batch = bytearray(HEADER_STRUCT.pack(
            0, 0, -1, MAGIC, 0, attributes, count - 1, self._base_timestamp, self.max_timestamp,
            producer_id, producer_epoch, base_sequence, count,
        ))  # fmt: skip
        records = b"".join(self._records)
        batch += compress(codec, records, level) if codec else records
        return seal(batch)


def end_txn_marker(
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    timestamp: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Build the control batch that ends a transaction in a partition.

    The result is the same as that of `build_batch`, in a fraction of the time.
    """
    batch = bytearray(HEADER_STRUCT.pack(
        base_offset, 0, leader_epoch, MAGIC, 0, TRANSACTIONAL_BIT | CONTROL_BIT, 0,
        timestamp, timestamp, producer_id, producer_epoch, -1, 1,
    ))  # fmt: skip
    batch += _end_txn_record(commit, coordinator_epoch)
    return bytes(seal(batch))


@lru_cache(maxsize=256)
def _end_txn_record(commit: bool, coordinator_epoch: int) -> bytes:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    key = _CONTROL_KEY.pack(_CONTROL_VERSION, kind)
    value = _END_TXN_VALUE.pack(_CONTROL_VERSION, coordinator_epoch)
    return encode_record(0, 0, key, value)


def control_type(batch: Buffer, header: BatchHeader | None = None) -> ControlType:
    """Return the type of a control batch; UNKNOWN for a type from a newer Kafka version."""
    return _control_type(_control_record(batch, header))


def read_end_txn_marker(batch: Buffer, header: BatchHeader | None = None) -> EndTxnMarker | None:
    """Return the marker in a control batch, or None if the batch is of another type."""
    record = _control_record(batch, header)
    kind = _control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise CorruptBatch("an end-of-transaction marker has no coordinator epoch")
    return EndTxnMarker(kind is ControlType.COMMIT, _END_TXN_VALUE.unpack_from(record.value)[1])


def _control_record(batch: Buffer, header: BatchHeader | None) -> BatchRecord:
    header = read_header(batch) if header is None else header
    record = next(iter_records(batch, header), None)
    if record is None or not header.is_control:
        raise CorruptBatch("not a control batch with a record", ErrorCode.INVALID_RECORD)
    return record


def _control_type(record: BatchRecord) -> ControlType:
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptBatch("a control record has no type", ErrorCode.INVALID_RECORD)
    try:
        return ControlType(_CONTROL_KEY.unpack_from(record.key)[1])
    except ValueError:
        return ControlType.UNKNOWN


def _fields(record: BatchRecord | RecordFields) -> BatchRecord:
    if isinstance(record, BatchRecord):
        return record
    key, value, headers, timestamp = record
    return BatchRecord(-1, timestamp, key, value, tuple(headers))


def _offsets(records: list[BatchRecord], base_offset: int, preserve: bool) -> list[int]:
    if not preserve:
        return list(range(base_offset, base_offset + len(records)))
    offsets = [record.offset for record in records]
    if any(later <= earlier for earlier, later in pairwise([base_offset - 1, *offsets])):
        raise ValueError(f"offsets must increase from {base_offset}")
    return offsets


def _encode_headers(headers: Sequence[Header]) -> bytes:
    varints = VARINTS
    parts = [varints[len(headers)]]
    for name, content in headers:
        encoded = name.encode("utf-8")
        parts += (varints[len(encoded)], encoded, varints[-1 if content is None else len(content)])
        if content:
            parts.append(content)
    return b"".join(parts)
