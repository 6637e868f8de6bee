"""Kernels that convert Arrow buffers to record batches.

`measure_rows` computes an upper bound for the size of the selected rows. `encode_rows` writes them,
batch after batch, with all header fields except the CRC. Invariants: `rows` are valid row numbers
of the columns, and the columns are valid Arrow data. `encode_rows` never writes beyond `out`, and
leaves out a batch for which there is no room. Both read the properties of a column, such as the
width of its offsets, from its row of `layout`.
"""

from __future__ import annotations

from typing import Any

from ottla.wire.records.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_SEQUENCE,
    MAX_TIMESTAMP_AT,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
)
from ottla.wire.records.columnar.jit import (
    BYTE_ARRAY,
    INPUT_BYTES,
    INPUT_INT64,
    INPUT_TABLE,
    INT64_ARRAY,
    OUTPUT_TABLE,
    copy,
    inlined,
    kernel,
    load_int32,
    load_int64,
    not_inlined,
    peek,
    poke,
    prefetch,
    store_big_int16,
    store_big_int32,
    store_big_int64,
    types,
)

KEY, VALUE, HEADERS, NAME, HEADER_VALUE = range(5)
"""Rows of `layout`, one per column."""
WIDTH, HAS_NULLS, FIRST_BIT = range(3)
"""Columns of `layout`.

They hold the size of an offset (0: the column is null), whether there is a validity bitmap, and the
index of the column's first bit in it.
"""
LAYOUT_FIELDS = 3

RECORD_OVERHEAD = 21
"""Maximum size of a record's length, attributes and deltas."""

AHEAD = 6
"""Number of rows by which prefetching is ahead when rows are gathered."""

BATCH_START, BATCH_END, BATCH_COUNT = range(3)
"""Columns of `batches`."""
BATCH_FIELDS = 3
DONE, BATCHES, BYTES = range(3)
"""Fields of the result of `encode_rows`: the next row, the number of batches, and their size."""
BOUND, LARGEST, LARGEST_AT, FAILED_AT = range(4)
"""Fields of the result of `measure_rows`.

They hold upper bounds for the size of all rows and of the largest row, the number of that row, and
the first row that has a header without a name, or -1.
"""
MEASURE_FIELDS = 4


@inlined
def item_start(ends: Any, layout: Any, column: Any, row: Any) -> Any:
    if layout[column, WIDTH] == 4:
        return types.int64(load_int32(ends, row * 4))
    return load_int64(ends, row * 8)


@inlined
def is_null(valid: Any, layout: Any, column: Any, row: Any) -> Any:
    if layout[column, HAS_NULLS]:
        bit = layout[column, FIRST_BIT] + row
        return (peek(valid, bit >> 3) >> (bit & 7)) & 1 == 0
    return layout[column, WIDTH] == 0


@inlined
def item(ends: Any, valid: Any, layout: Any, column: Any, row: Any) -> Any:
    """Return the start and the length of a row's bytes; the length of a null is -1."""
    if is_null(valid, layout, column, row):
        return types.int64(0), types.int64(-1)
    start = item_start(ends, layout, column, row)
    return start, item_start(ends, layout, column, row + 1) - start


@inlined
def prefetch_row(data: Any, ends: Any, layout: Any, column: Any, row: Any) -> None:
    """Prefetch a row's bytes. Gathering scattered rows would otherwise wait for memory."""
    if layout[column, WIDTH]:
        start = item_start(ends, layout, column, row)
        prefetch(data, start)
        prefetch(data, start + 64)


@inlined
def varint_size(value: Any) -> Any:
    folded = types.uint64((value << 1) ^ (value >> 63))
    if folded < 0x80:
        return types.int64(1)
    if folded < 0x4000:
        return types.int64(2)
    return long_varint_size(folded)


@not_inlined
def long_varint_size(folded: Any) -> Any:
    size = types.int64(1)
    while folded > 0x7F:
        folded >>= types.uint64(7)
        size += 1
    return size


@inlined
def write_varint(out: Any, position: Any, value: Any) -> Any:
    """Write a varint, and return the position after it."""
    folded = types.uint64((value << 1) ^ (value >> 63))
    if folded < 0x80:
        poke(out, position, types.uint8(folded))
        return position + 1
    if folded < 0x4000:
        poke(out, position, types.uint8(folded | 0x80))
        poke(out, position + 1, types.uint8(folded >> types.uint64(7)))
        return position + 2
    return write_long_varint(out, position, folded)


@not_inlined
def write_long_varint(out: Any, position: Any, folded: Any) -> Any:
    while folded > 0x7F:
        poke(out, position, types.uint8(folded | 0x80))
        folded >>= types.uint64(7)
        position += 1
    poke(out, position, types.uint8(folded))
    return position + 1


@inlined
def write_item(out: Any, position: Any, data: Any, start: Any, length: Any) -> Any:
    position = write_varint(out, position, length)
    if length > 0:
        copy(out, position, data, start, length)
        position += length
    return position


@inlined
def encoded_size(length: Any) -> Any:
    """Return the encoded size of a nullable field with this length."""
    return varint_size(length) + max(length, types.int64(0))


@inlined
def header_range(list_ends: Any, list_valid: Any, layout: Any, row: Any) -> Any:
    """Return the range of a row's headers in the columns of names and values."""
    start, count = item(list_ends, list_valid, layout, HEADERS, row)
    return start, start + max(count, types.int64(0))


@not_inlined
def headers_size(
    row: Any, list_ends: Any, list_valid: Any, name_ends: Any, name_valid: Any,
    value_ends: Any, value_valid: Any, layout: Any,
) -> Any:  # fmt: skip
    """Return the encoded size of a row's headers and their count; -1 if a header has no name."""
    first, end = header_range(list_ends, list_valid, layout, row)
    size = varint_size(end - first)
    for header in range(first, end):
        _, length = item(name_ends, name_valid, layout, NAME, header)
        if length < 0:
            return types.int64(-1)
        size += encoded_size(length)
        _, length = item(value_ends, value_valid, layout, HEADER_VALUE, header)
        size += encoded_size(length)
    return size


@kernel(
    types.void(
        INPUT_INT64, types.int64, INPUT_TABLE, INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INPUT_BYTES,
        INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INT64_ARRAY,
    )
)  # fmt: skip
def measure_rows(
    rows: Any,
    count: Any,
    layout: Any,
    key_ends: Any,
    key_valid: Any,
    value_ends: Any,
    value_valid: Any,
    list_ends: Any,
    list_valid: Any,
    name_ends: Any,
    name_valid: Any,
    header_value_ends: Any,
    header_value_valid: Any,
    result: Any,
) -> None:
    """Compute the maximum size of the rows as records, however they are split into batches."""
    bound = largest = types.int64(0)
    largest_at: Any = types.int64(0)
    result[FAILED_AT] = -1
    has_rows = rows.shape[0] > 0
    for index in range(count):
        row = rows[index] if has_rows else index
        _, length = item(key_ends, key_valid, layout, KEY, row)
        size = RECORD_OVERHEAD + encoded_size(length)
        _, length = item(value_ends, value_valid, layout, VALUE, row)
        size += encoded_size(length)
        headers = types.int64(1)
        if layout[HEADERS, WIDTH]:
            headers = headers_size(
                row, list_ends, list_valid, name_ends, name_valid,
                header_value_ends, header_value_valid, layout,
            )  # fmt: skip
            if headers < 0:
                result[FAILED_AT] = row
                return
        size += headers
        bound += size
        if size > largest:
            largest, largest_at = size, row
    result[BOUND], result[LARGEST], result[LARGEST_AT] = bound, largest, largest_at


@inlined
def write_batch_header(
    out: Any, start: Any, end: Any, attributes: Any, count: Any, base_timestamp: Any,
    max_timestamp: Any, producer_id: Any, producer_epoch: Any, sequence: Any,
) -> None:  # fmt: skip
    store_big_int64(out, start + BASE_OFFSET_AT, 0)
    store_big_int32(out, start + LENGTH_AT, types.int32(end - start - LOG_OVERHEAD))
    store_big_int32(out, start + LEADER_EPOCH_AT, types.int32(-1))
    poke(out, start + MAGIC_AT, types.uint8(MAGIC))
    store_big_int16(out, start + ATTRIBUTES_AT, types.int16(attributes))
    store_big_int32(out, start + LAST_OFFSET_DELTA_AT, types.int32(count - 1))
    store_big_int64(out, start + BASE_TIMESTAMP_AT, base_timestamp)
    store_big_int64(out, start + MAX_TIMESTAMP_AT, max_timestamp)
    store_big_int64(out, start + PRODUCER_ID_AT, producer_id)
    store_big_int16(out, start + PRODUCER_EPOCH_AT, types.int16(producer_epoch))
    store_big_int32(out, start + BASE_SEQUENCE_AT, types.int32(sequence))
    store_big_int32(out, start + RECORD_COUNT_AT, types.int32(count))


@kernel(
    types.void(
        INPUT_INT64, types.int64, types.int64, INPUT_TABLE,
        INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INPUT_BYTES,
        INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INPUT_BYTES,
        INPUT_BYTES, INPUT_BYTES, INPUT_BYTES, INPUT_INT64, types.int64,
        types.int64, types.int64, types.int64, types.int64, types.int64,
        BYTE_ARRAY, OUTPUT_TABLE, INT64_ARRAY,
    )
)  # fmt: skip
def encode_rows(  # noqa: C901
    rows: Any,
    first: Any,
    count: Any,
    layout: Any,
    key_data: Any,
    key_ends: Any,
    key_valid: Any,
    value_data: Any,
    value_ends: Any,
    value_valid: Any,
    list_ends: Any,
    list_valid: Any,
    name_data: Any,
    name_ends: Any,
    name_valid: Any,
    header_value_data: Any,
    header_value_ends: Any,
    header_value_valid: Any,
    timestamps: Any,
    default_timestamp: Any,
    batch_size: Any,
    attributes: Any,
    producer_id: Any,
    producer_epoch: Any,
    base_sequence: Any,
    out: Any,
    batches: Any,
    result: Any,
) -> None:
    """Encode rows from `first` on into batches, as long as complete batches fit into `out`.

    A batch has at most `batch_size` bytes, or a single record. The row at index 0 has the sequence
    `base_sequence`.
    """
    capacity, most_batches = types.int64(out.shape[0]), types.int64(batches.shape[0])
    has_rows, has_timestamps = rows.shape[0] > 0, timestamps.shape[0] > 0
    with_headers = layout[HEADERS, WIDTH] > 0
    made = start = types.int64(0)
    index = batch_first = first
    while index < count and made < most_batches:
        position = start + HEADER_SIZE
        base_timestamp = max_timestamp = types.int64(0)
        batch_first = index
        is_full = False
        while index < count:
            row = index
            if has_rows:
                row = rows[index]
                if index + AHEAD < count:
                    prefetch_row(value_data, value_ends, layout, VALUE, rows[index + AHEAD])
            key_start, key_length = item(key_ends, key_valid, layout, KEY, row)
            value_start, value_length = item(value_ends, value_valid, layout, VALUE, row)
            timestamp = timestamps[row] if has_timestamps else default_timestamp
            if index == batch_first:
                base_timestamp = max_timestamp = timestamp
            body = encoded_size(key_length) + encoded_size(value_length) + 1
            body += varint_size(timestamp - base_timestamp) + varint_size(index - batch_first)
            if with_headers:
                body += headers_size(
                    row, list_ends, list_valid, name_ends, name_valid,
                    header_value_ends, header_value_valid, layout,
                )  # fmt: skip
            else:
                body += 1
            end = position + varint_size(body) + body
            if end - start > batch_size and index > batch_first:
                break
            if end > capacity:
                is_full = True
                break
            position = write_varint(out, position, body)
            poke(out, position, types.uint8(0))
            position = write_varint(out, position + 1, timestamp - base_timestamp)
            position = write_varint(out, position, index - batch_first)
            position = write_item(out, position, key_data, key_start, key_length)
            position = write_item(out, position, value_data, value_start, value_length)
            if with_headers:
                header, last = header_range(list_ends, list_valid, layout, row)
                position = write_varint(out, position, last - header)
                while header < last:
                    item_at, length = item(name_ends, name_valid, layout, NAME, header)
                    position = write_item(out, position, name_data, item_at, length)
                    item_at, length = item(
                        header_value_ends, header_value_valid, layout, HEADER_VALUE, header
                    )
                    position = write_item(out, position, header_value_data, item_at, length)
                    header += 1
            else:
                poke(out, position, types.uint8(0))
                position += 1
            max_timestamp = max(max_timestamp, timestamp)
            index += 1
        if is_full:
            index = batch_first
            break
        sequence = base_sequence
        if base_sequence >= 0:
            sequence = (base_sequence + batch_first) & MAX_SEQUENCE
        write_batch_header(
            out, start, position, attributes, index - batch_first, base_timestamp, max_timestamp,
            producer_id, producer_epoch, sequence,
        )  # fmt: skip
        batches[made, BATCH_START] = start
        batches[made, BATCH_END] = position
        batches[made, BATCH_COUNT] = index - batch_first
        made += 1
        start = position
    result[DONE], result[BATCHES], result[BYTES] = index, made, start
