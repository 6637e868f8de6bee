"""Encoding of Arrow columns as record batches, ready to be produced.

A batch has at most `batch_size` bytes before compression, or a single larger record. The producer
ID, epoch and sequence, which may be known only when a batch is sent, have fixed positions in the
header but are covered by the CRC; `stamp_producer` (batch.py) sets them and the CRC later. Batches
that are encoded together share memory, which is freed with the last of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.wire.records.batch import (
    ATTRIBUTES_AT,
    CHECKED_FROM,
    CRC_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
)
from ottla.wire.records.columnar import encode_kernels as k
from ottla.wire.records.columnar.columns import RecordColumns
from ottla.wire.records.columnar.requirements import numpy as np
from ottla.wire.records.columnar.requirements import pyarrow as pa
from ottla.wire.records.compression import codec_id, compress
from ottla.wire.records.crc import crc32c
from ottla.wire.records.errors import InvalidBatch

MAX_RECORD_SIZE = 0x7FFFFFFF - HEADER_SIZE
CHUNK_SIZE = 8 * 1024 * 1024
"""Size of the memory to encode at a time, unless a single batch is larger."""

_ALL_ROWS = np.empty(0, np.int64)
_ALL_ROWS.setflags(write=False)
_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">i")


class EncodedBatch(NamedTuple):
    """One batch to produce."""

    data: memoryview
    """The complete batch. It is writable, for `stamp_producer`."""
    record_count: int


def encode_batches(
    columns: RecordColumns,
    rows: Any = None,
    *,
    batch_size: int = 1024 * 1024,
    compression: int | str = "none",
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    max_record_size: int = MAX_RECORD_SIZE,
    checksum: bool = True,
) -> Iterator[EncodedBatch]:
    """Encode rows as batches, in the given order.

    Args:
        columns: The columns to encode.
        rows: Row numbers as an int64 array, such as `RowGroups.rows`, or None for all rows.
        batch_size: Maximum size of a batch before compression.
        compression: ID or name of the codec.
        level: Compression level, or None for the default of the codec.
        producer_id: Producer ID, or -1.
        producer_epoch: Producer epoch, or -1.
        base_sequence: Sequence of the first row, or -1. Later batches continue from it.
        transactional: Whether the batches are part of a transaction.
        max_record_size: Maximum size of a record, checked before the first batch is encoded.
        checksum: Whether to set the CRC. If not, call `stamp_producer`.

    Raises:
        InvalidBatch: A record may exceed `max_record_size`, or a header has no key.
        TypeError: `rows` is not a one-dimensional array of integers.
        IndexError: `rows` has a row number that does not exist.
    """
    selection, count = _selection(columns, rows)
    codec = codec_id(compression) if isinstance(compression, str) else compression
    batch_size = min(batch_size, 0x7FFFFFFF)
    bound, largest = _measure(columns, selection, count, max_record_size)
    chunk_size = max(CHUNK_SIZE, min(batch_size, bound), largest) + HEADER_SIZE
    attributes = TRANSACTIONAL_BIT if transactional else 0
    done = 0
    while done < count:
        # Any two adjacent batches together exceed batch_size; otherwise they would be one.
        most = min(count - done, 2 * min(chunk_size, bound) // max(batch_size, HEADER_SIZE) + 2)
        size = min(chunk_size, bound + most * HEADER_SIZE)
        out = memoryview(pa.allocate_buffer(size)).cast("B")
        table = np.empty((most, k.BATCH_FIELDS), np.int64)
        result = np.zeros(3, np.int64)
        k.encode_rows(
            selection, done, count, columns.layout,
            *_buffers(columns), columns.timestamps, columns.default_timestamp_ms,
            batch_size, attributes, producer_id, producer_epoch, base_sequence,
            np.frombuffer(out, np.uint8), table, result,
        )  # fmt: skip
        done, made, used = result.tolist()
        bound -= used - made * HEADER_SIZE
        for start, end, records in table[:made].tolist():
            yield EncodedBatch(_finished(out[start:end], codec, level, checksum), records)


def _selection(columns: RecordColumns, rows: Any) -> tuple[Any, int]:
    if rows is None:
        return _ALL_ROWS, columns.row_count
    selection = np.ascontiguousarray(rows)
    if selection.ndim != 1 or (len(selection) and selection.dtype.kind not in "iu"):
        raise TypeError("the selected rows must be a one-dimensional array of integers")
    selection = selection.astype(np.int64, copy=False).view()
    selection.setflags(write=False)
    if len(selection) and not 0 <= selection.min() <= selection.max() < columns.row_count:
        raise IndexError(
            f"the table has {columns.row_count} rows, and a selected row is out of range"
        )
    return selection, len(selection)


def _measure(columns: RecordColumns, rows: Any, count: int, max_size: int) -> tuple[int, int]:
    """Return upper bounds for the size of all selected records and of the largest one."""
    result = np.zeros(k.MEASURE_FIELDS, np.int64)
    key, value, headers = columns.key, columns.value, columns.headers
    names, values = columns.names, columns.header_values
    k.measure_rows(
        rows, count, columns.layout, key.ends, key.valid, value.ends, value.valid,
        headers.ends, headers.valid, names.ends, names.valid, values.ends, values.valid, result,
    )  # fmt: skip
    bound, largest, largest_at, failed_at = result.tolist()
    if failed_at >= 0:
        raise InvalidBatch(f"a header of row {failed_at} has no key")
    allowed = min(max_size, MAX_RECORD_SIZE)
    if largest > allowed:
        raise InvalidBatch(
            f"row {largest_at} needs up to {largest} bytes as a record; the limit is {allowed} "
            "bytes",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    return bound, largest


def _buffers(columns: RecordColumns) -> tuple[Any, ...]:
    """Return the buffers in the order of the kernel's parameters."""
    key, value, headers = columns.key, columns.value, columns.headers
    names, values = columns.names, columns.header_values
    return (
        key.data, key.ends, key.valid, value.data, value.ends, value.valid,
        headers.ends, headers.valid, names.data, names.ends, names.valid,
        values.data, values.ends, values.valid,
    )  # fmt: skip


def _finished(batch: memoryview, codec: int, level: int | None, checksum: bool) -> memoryview:
    """Return the batch compressed and with its CRC."""
    if codec:
        records = compress(codec, batch[HEADER_SIZE:], level)
        smaller = bytearray(HEADER_SIZE + len(records))
        smaller[:HEADER_SIZE] = batch[:HEADER_SIZE]
        smaller[HEADER_SIZE:] = records
        smaller[ATTRIBUTES_AT + 1] |= codec
        batch = memoryview(smaller)
        _LENGTH.pack_into(batch, LENGTH_AT, len(batch) - LOG_OVERHEAD)
    if checksum:
        _CRC.pack_into(batch, CRC_AT, crc32c(batch[CHECKED_FROM:]))
    return batch
