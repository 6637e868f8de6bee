"""Kernels that choose partitions and sort rows by partition."""

from __future__ import annotations

from typing import Any

from ottla.wire.records.columnar.jit import (
    INPUT_BYTES,
    INPUT_INT32,
    INT32_ARRAY,
    INT64_ARRAY,
    inlined,
    kernel,
    load_int32,
    load_int64,
    load_uint32,
    peek,
    types,
)

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


@inlined
def murmur2_at(data: Any, position: Any, length: Any) -> Any:
    """Return Kafka's murmur2 hash, unsigned. The 32-bit arithmetic is done in 64 bits."""
    multiplier, mask = types.uint64(_MULTIPLIER), types.uint64(_MASK)
    hashed = types.uint64(_SEED) ^ types.uint64(length)
    end = position + (length & ~3)
    while position < end:
        word = types.uint64(load_uint32(data, position)) * multiplier & mask
        word = (word ^ (word >> types.uint64(24))) * multiplier
        hashed = (hashed * multiplier ^ word) & mask
        position += 4
    rest = length & 3
    if rest:
        if rest == 3:
            hashed ^= types.uint64(peek(data, position + 2)) << types.uint64(16)
        if rest >= 2:
            hashed ^= types.uint64(peek(data, position + 1)) << types.uint64(8)
        hashed = (hashed ^ types.uint64(peek(data, position))) * multiplier & mask
    hashed = (hashed ^ (hashed >> types.uint64(13))) * multiplier & mask
    return hashed ^ (hashed >> types.uint64(15))


@kernel(
    types.void(
        INPUT_BYTES, INPUT_BYTES, types.int64, INPUT_BYTES, types.int64,
        types.int64, types.int64, INT32_ARRAY,
    )
)  # fmt: skip
def choose_partitions(
    data: Any,
    ends: Any,
    width: Any,
    valid: Any,
    first_bit: Any,
    partition_count: Any,
    null_partition: Any,
    partitions: Any,
) -> None:
    """Choose the partition of each key. A column of width 0 contains only nulls."""
    has_nulls = valid.shape[0] > 0
    for row in range(partitions.shape[0]):
        is_null = width == 0
        if has_nulls:
            bit = first_bit + row
            is_null = (peek(valid, bit >> 3) >> (bit & 7)) & 1 == 0
        if is_null:
            partitions[row] = null_partition
            continue
        if width == 4:
            start = types.int64(load_int32(ends, row * 4))
            end = types.int64(load_int32(ends, row * 4 + 4))
        else:
            start, end = load_int64(ends, row * 8), load_int64(ends, row * 8 + 8)
        positive = types.int64(murmur2_at(data, start, end - start)) & 0x7FFFFFFF
        partitions[row] = positive % partition_count


@kernel(types.int64(INPUT_INT32, INT64_ARRAY, INT64_ARRAY))
def sort_rows(partitions: Any, starts: Any, order: Any) -> Any:
    """Sort row numbers by partition, keeping their order within each partition.

    Fills `order` with the row numbers, and `starts` with the index of each partition's first row.
    Returns -1, or the first row whose partition does not exist.
    """
    count = starts.shape[0] - 1
    starts[:] = 0
    for row in range(partitions.shape[0]):
        partition = partitions[row]
        if partition < 0 or partition >= count:
            return row
        starts[partition + 1] += 1
    for partition in range(count):
        starts[partition + 1] += starts[partition]
    # Each start is used as the index of the partition's next row, and restored at the end.
    for row in range(partitions.shape[0]):
        partition = partitions[row]
        order[starts[partition]] = row
        starts[partition] += 1
    for partition in range(count, 0, -1):
        starts[partition] = starts[partition - 1]
    starts[0] = 0
    return -1
