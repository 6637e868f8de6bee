"""The fast path for fetch responses without special cases.

Most responses consist of complete, uncompressed, intact batches, and producers without linger.ms
send few records per batch. Parsing such headers one by one in Python takes longer than decoding all
the records. `scan_fetch` parses them in one kernel, and checks the CRCs, which take a fifth of that
time, in Python. If it finds anything unusual it returns None, and the batches take the slow path
through fetched.py, which implements every rule and error. Tests check that both give the same
results.
"""

from __future__ import annotations

from typing import Any

from ottla.wire.records.batch import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_TIMESTAMP_AT,
    CHECKED_FROM,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
)
from ottla.wire.records.columnar.decode_kernels import (
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_FIELDS,
    COUNT,
    END,
    IS_APPEND_TIME,
    LAST_DELTA,
    MAX_TIMESTAMP,
    SMALLEST_RECORD,
    START,
)
from ottla.wire.records.columnar.jit import (
    INPUT_BYTES,
    INT64_ARRAY,
    OUTPUT_TABLE,
    as_input,
    kernel,
    load_big_int16,
    load_big_int32,
    load_big_int64,
    peek,
    types,
)
from ottla.wire.records.columnar.parts import FetchPart
from ottla.wire.records.columnar.requirements import numpy as np
from ottla.wire.records.columnar.requirements import pyarrow as pa
from ottla.wire.records.crc import Buffer, crc32c
from ottla.wire.records.fetched import MAX_OFFSET

CHECKED_START, CHECKED_END, CRC = range(3)
"""Columns of `checks`: the range of bytes that a CRC covers, and the CRC."""
CHECK_FIELDS = 3
IS_PLAIN, BATCHES, WANTED, RECORDS, RECORD_BYTES, SIZE, NEXT_OFFSET = range(7)
RESULT_FIELDS = 7


def scan_fetch(records: Buffer, first_offset: int, end_offset: int) -> FetchPart | None:
    """Return all batches of a fetch response as one part, or None if it needs the slow path."""
    data = as_input(records)
    most = len(data) // HEADER_SIZE
    table = _table(most, BATCH_FIELDS)
    checks = _table(most, CHECK_FIELDS)
    result = np.zeros(RESULT_FIELDS, np.int64)
    scan_batches(data, first_offset, end_offset, table, checks, result)
    is_plain, batches, wanted, count, record_bytes, size, next_offset = result.tolist()
    if not is_plain:
        return None
    view, checksum = memoryview(records), crc32c
    for start, end, crc in checks[:batches].tolist():
        if checksum(view[start:end]) != crc:
            return None
    found = table[:wanted]
    found.setflags(write=False)
    return FetchPart(data, found, count, record_bytes, size, next_offset)


def _table(rows: int, fields: int) -> Any:
    return np.frombuffer(pa.allocate_buffer(rows * fields * 8), np.int64).reshape(rows, fields)


@kernel(types.void(INPUT_BYTES, types.int64, types.int64, OUTPUT_TABLE, OUTPUT_TABLE, INT64_ARRAY))
def scan_batches(
    data: Any, first_offset: Any, end_offset: Any, table: Any, checks: Any, result: Any
) -> None:
    position = batches = wanted = records = record_bytes = next_offset = types.int64(0)
    size = types.int64(data.shape[0])
    result[IS_PLAIN] = 0
    while position + HEADER_SIZE <= size:
        base_offset = load_big_int64(data, position + BASE_OFFSET_AT)
        length = types.int64(load_big_int32(data, position + LENGTH_AT)) + LOG_OVERHEAD
        if base_offset >= end_offset and length >= HEADER_SIZE and length <= size - position:
            break
        if length < HEADER_SIZE or peek(data, position + MAGIC_AT) != MAGIC:
            return
        if length > size - position:
            break
        attributes = load_big_int16(data, position + ATTRIBUTES_AT)
        delta = types.int64(load_big_int32(data, position + LAST_OFFSET_DELTA_AT))
        count = types.int64(load_big_int32(data, position + RECORD_COUNT_AT))
        if attributes & COMPRESSION_MASK or delta < 0 or count < 0 or count > delta + 1:
            return
        if base_offset < 0 or base_offset > MAX_OFFSET - delta - 1:
            return
        checks[batches, CHECKED_START] = position + CHECKED_FROM
        checks[batches, CHECKED_END] = position + length
        crc = types.int64(load_big_int32(data, position + CRC_AT)) & 0xFFFFFFFF
        checks[batches, CRC] = crc
        batches += 1
        if base_offset + delta >= first_offset and not attributes & CONTROL_BIT:
            if count * SMALLEST_RECORD > length - HEADER_SIZE:
                return
            table[wanted, START] = position + HEADER_SIZE
            table[wanted, END] = position + length
            table[wanted, COUNT] = count
            table[wanted, BASE_OFFSET] = base_offset
            table[wanted, LAST_DELTA] = delta
            table[wanted, BASE_TIMESTAMP] = load_big_int64(data, position + BASE_TIMESTAMP_AT)
            table[wanted, IS_APPEND_TIME] = (attributes >> 3) & 1
            table[wanted, MAX_TIMESTAMP] = load_big_int64(data, position + MAX_TIMESTAMP_AT)
            wanted += 1
            records += count
            record_bytes += length - HEADER_SIZE
        position += length
        next_offset = max(next_offset, base_offset + delta + 1)
    if MAGIC_AT < size - position < HEADER_SIZE and peek(data, position + MAGIC_AT) != MAGIC:
        return
    result[IS_PLAIN], result[BATCHES], result[WANTED] = 1, batches, wanted
    result[RECORDS], result[RECORD_BYTES] = records, record_bytes
    result[SIZE], result[NEXT_OFFSET] = position, next_offset
