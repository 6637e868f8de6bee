"""Kernels that convert records to Arrow buffers.

`decode_records` processes every record of many batches in one pass. It writes each requested
column; for headers, it records only their positions and total sizes, and `decode_headers` writes
them. Invariants, which the caller establishes and the kernels preserve:

- The bytes of each batch lie within `data`, and there are at least `SMALLEST_RECORD` bytes per
  claimed record, so outputs that are sized by counts and by `data` cannot overflow.
- No position is read before it is known to lie before the end of its record.
- A batch that does not parse ends the pass. `result` then describes the batches before it, and
  identifies it.

The parsing rules are those of record.py, and tests check that both give the same results.
"""

from __future__ import annotations

from typing import Any

from ottla.wire.records.columnar.jit import (
    BYTE_ARRAY,
    INPUT_BYTES,
    INPUT_INT64,
    INPUT_TABLE,
    INT32_ARRAY,
    INT64_ARRAY,
    copy,
    inlined,
    kernel,
    not_inlined,
    peek,
    poke,
    types,
)

SMALLEST_RECORD = 7
"""Minimum size of a record.

Length, attributes, timestamp and offset deltas, key and value lengths and header count take at
least one byte each.
"""

START, END, COUNT, BASE_OFFSET, LAST_DELTA, BASE_TIMESTAMP, IS_APPEND_TIME, MAX_TIMESTAMP = range(8)
"""Columns of `batches`: the position of the records in `data`, and fields of the batch header."""
BATCH_FIELDS = 8

OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY, VALUE, HEADERS = 1, 2, 4, 8, 16, 32
"""Bits of `columns`, which select the columns to decode."""

(
    ROWS,
    KEY_BYTES,
    VALUE_BYTES,
    KEY_NULLS,
    VALUE_NULLS,
    HEADER_COUNT,
    NAME_BYTES,
    HEADER_VALUE_BYTES,
    HEADERS_FROM,
    FAILED_BATCH,
    FAILED_AT,
) = range(11)
"""Fields of `result`.

FAILED_BATCH is -1 if every batch was decoded. HEADERS_FROM is the first row with headers, if any.
"""
RESULT_FIELDS = 11
HEADER_NULLS, HAS_UPPER_BYTES = range(2)
"""Fields of the result of `decode_headers`: null values, and whether a name is not plain ASCII."""

_TIME_LIMIT = 1 << 62
_NOWHERE = 1 << 62
"""Position after every end, returned for a varint that does not parse."""


@inlined
def read_varint(data: Any, position: Any, end: Any) -> Any:
    """Return the value at `position` and the position after it, or `_NOWHERE` if it is invalid."""
    if position + 1 < end:
        first = types.int64(peek(data, position))
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), position + 1
        second = types.int64(peek(data, position + 1))
        if second < 0x80:
            folded = first & 0x7F | second << 7
            return (folded >> 1) ^ -(folded & 1), position + 2
    return read_any_varint(data, position, end)


@not_inlined
def read_any_varint(data: Any, position: Any, end: Any) -> Any:
    folded = types.uint64(0)
    shift = types.uint64(0)
    while position < end and shift < 70:
        byte = types.uint64(peek(data, position))
        position += 1
        if shift == 63 and byte > 1:
            break
        folded |= (byte & types.uint64(0x7F)) << shift
        if byte < 0x80:
            value = types.int64(folded >> types.uint64(1)) ^ -types.int64(folded & types.uint64(1))
            return value, position
        shift += types.uint64(7)
    return types.int64(0), types.int64(_NOWHERE)


@inlined
def measure_headers(data: Any, position: Any, end: Any) -> Any:
    """Return the number of headers and the total sizes of their names and values.

    The number is -1 if the headers do not fill the record exactly.
    """
    if position + 1 == end and peek(data, position) == 0:
        return types.int64(0), types.int64(0), types.int64(0)
    failure = types.int64(-1), types.int64(0), types.int64(0)
    count, position = read_varint(data, position, end)
    if count < 0 or position > end or count > end - position:
        return failure
    names = values = types.int64(0)
    for _ in range(count):
        length, position = read_varint(data, position, end)
        if position > end or length < 0 or length > end - position:
            return failure
        position += length
        names += length
        length, position = read_varint(data, position, end)
        if position > end or length < -1 or length > end - position:
            return failure
        if length > 0:
            position += length
            values += length
    if position != end:
        return failure
    return count, names, values


@inlined
def mark_null(valid: Any, row: Any) -> None:
    place = row >> 3
    poke(valid, place, types.uint8(peek(valid, place) & ~(1 << (row & 7))))


@kernel(
    types.void(
        INPUT_BYTES, INPUT_TABLE, types.int64, types.int64, types.int64,
        INT64_ARRAY, INT64_ARRAY, INT32_ARRAY,
        INT32_ARRAY, BYTE_ARRAY, BYTE_ARRAY, INT32_ARRAY, BYTE_ARRAY, BYTE_ARRAY,
        INT64_ARRAY, INT64_ARRAY,
    )
)  # fmt: skip
def decode_records(  # noqa: C901
    data: Any,
    batches: Any,
    first_offset: Any,
    end_offset: Any,
    columns: Any,
    offsets: Any,
    timestamps: Any,
    timestamp_types: Any,
    key_ends: Any,
    key_data: Any,
    key_valid: Any,
    value_ends: Any,
    value_data: Any,
    value_valid: Any,
    headers_at: Any,
    result: Any,
) -> None:
    """Decode the records from `first_offset` to before `end_offset` into the requested columns.

    `…_ends` are Arrow's offsets without the leading 0. `…_valid` are bitmaps of ones, in which this
    kernel clears the bits of nulls. Arrays of columns that are not requested may be empty. Nothing
    is written to a key column without any value, nor to `headers_at` before HEADERS_FROM.
    """
    with_offset, with_timestamp = columns & OFFSET, columns & TIMESTAMP
    with_type, with_key = columns & TIMESTAMP_TYPE, columns & KEY
    with_value, with_headers = columns & VALUE, columns & HEADERS
    rows = key_bytes = value_bytes = key_nulls = value_nulls = types.int64(0)
    header_count = name_bytes = header_value_bytes = types.int64(0)
    result[FAILED_BATCH] = -1
    for index in range(batches.shape[0]):
        result[ROWS], result[KEY_BYTES], result[VALUE_BYTES] = rows, key_bytes, value_bytes
        result[KEY_NULLS], result[VALUE_NULLS] = key_nulls, value_nulls
        result[HEADER_COUNT], result[NAME_BYTES] = header_count, name_bytes
        result[HEADER_VALUE_BYTES] = header_value_bytes
        position, section_end = batches[index, START], batches[index, END]
        base_offset, last_delta = batches[index, BASE_OFFSET], batches[index, LAST_DELTA]
        base_timestamp = batches[index, BASE_TIMESTAMP]
        append_time, newest = batches[index, IS_APPEND_TIME], batches[index, MAX_TIMESTAMP]
        good = -_TIME_LIMIT < base_timestamp < _TIME_LIMIT
        start = position
        for _ in range(batches[index, COUNT]):
            start = position
            length, position = read_varint(data, position, section_end)
            if position > section_end or length < 0 or length > section_end - position:
                good = False
                break
            end = position + length
            time_delta, position = read_varint(data, position + 1, end)
            delta, position = read_varint(data, position, end)
            key_length, key_start = read_varint(data, position, end)
            if key_start > end or key_length < -1 or key_length > end - key_start:
                good = False
                break
            position = key_start + max(key_length, 0)
            value_length, value_start = read_varint(data, position, end)
            if value_start > end or value_length < -1 or value_length >= end - value_start:
                good = False
                break
            position = value_start + max(value_length, 0)
            if position >= end or delta < 0 or delta > last_delta:
                good = False
                break
            if time_delta <= -_TIME_LIMIT or time_delta >= _TIME_LIMIT:
                good = False
                break
            if with_headers:
                count, names, values = measure_headers(data, position, end)
                if count < 0:
                    good = False
                    break
            header_position, position = position, end
            offset = base_offset + delta
            if offset < first_offset or offset >= end_offset:
                continue
            if with_offset:
                offsets[rows] = offset
            if with_timestamp:
                timestamps[rows] = newest if append_time else base_timestamp + time_delta
            if with_type:
                timestamp_types[rows] = append_time
            if with_key:
                if key_length < 0:
                    if key_nulls < rows:
                        mark_null(key_valid, rows)
                        key_ends[rows] = key_bytes
                    key_nulls += 1
                else:
                    if key_nulls == rows:
                        for row in range(rows):
                            mark_null(key_valid, row)
                            key_ends[row] = 0
                    copy(key_data, key_bytes, data, key_start, key_length)
                    key_bytes += key_length
                    key_ends[rows] = key_bytes
            if with_value:
                if value_length < 0:
                    mark_null(value_valid, rows)
                    value_nulls += 1
                elif value_length > 0:
                    copy(value_data, value_bytes, data, value_start, value_length)
                    value_bytes += value_length
                value_ends[rows] = value_bytes
            if with_headers and (count or header_count):
                if not header_count:
                    result[HEADERS_FROM] = rows
                headers_at[rows] = header_position
                header_count += count
                name_bytes += names
                header_value_bytes += values
            rows += 1
        if not good or position != section_end:
            result[FAILED_BATCH], result[FAILED_AT] = index, start - batches[index, START]
            return
    result[ROWS], result[KEY_BYTES], result[VALUE_BYTES] = rows, key_bytes, value_bytes
    result[KEY_NULLS], result[VALUE_NULLS] = key_nulls, value_nulls
    result[HEADER_COUNT], result[NAME_BYTES] = header_count, name_bytes
    result[HEADER_VALUE_BYTES] = header_value_bytes


@kernel(
    types.void(
        INPUT_BYTES, INPUT_INT64, INT32_ARRAY, INT32_ARRAY, BYTE_ARRAY,
        INT32_ARRAY, BYTE_ARRAY, BYTE_ARRAY, INT64_ARRAY,
    )
)  # fmt: skip
def decode_headers(
    data: Any,
    headers_at: Any,
    list_ends: Any,
    name_ends: Any,
    name_data: Any,
    value_ends: Any,
    value_data: Any,
    value_valid: Any,
    result: Any,
) -> None:
    """Decode the headers that `decode_records` has validated, into outputs of matching size."""
    limit = types.int64(data.shape[0])
    total = name_bytes = value_bytes = nulls = types.int64(0)
    for row in range(headers_at.shape[0]):
        count, position = read_varint(data, headers_at[row], limit)
        for _ in range(count):
            length, position = read_varint(data, position, limit)
            copy(name_data, name_bytes, data, position, length)
            position += length
            name_bytes += length
            name_ends[total] = name_bytes
            length, position = read_varint(data, position, limit)
            if length < 0:
                mark_null(value_valid, total)
                nulls += 1
            else:
                copy(value_data, value_bytes, data, position, length)
                position += length
                value_bytes += length
            value_ends[total] = value_bytes
            total += 1
        list_ends[row] = total
    seen = types.uint8(0)
    for index in range(name_bytes):
        seen |= peek(name_data, index)
    result[HEADER_NULLS], result[HAS_UPPER_BYTES] = nulls, seen >> 7
