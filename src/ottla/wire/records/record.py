"""The records inside a batch.

    length (varint, bytes that follow), attributes (int8, 0),
    timestampDelta (varlong), offsetDelta (varint),
    keyLength (varint, -1 null), key, valueLength (varint, -1 null), value,
    headerCount (varint), and for each: keyLength, key (UTF-8), valueLength (-1 null), value

Timestamps are deltas from the batch's baseTimestamp, even if that is a delete horizon (see
rewrite.py). If the batch has LogAppendTime, all of its records have maxTimestamp instead.

Invariants: memory and time are bounded by the available bytes, and by `max_size` for the
decompressed records; no count or length in the data determines an allocation. Bytes that do not
parse raise `CorruptBatch` with the code INVALID_RECORD: the CRC was correct, so a retry by the
producer would fail again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple, TypeAlias

from ottla.base.errors import ErrorCode
from ottla.wire.records import compression
from ottla.wire.records.batch import HEADER_SIZE, BatchHeader
from ottla.wire.records.crc import Buffer
from ottla.wire.records.errors import CorruptBatch, InvalidBatch
from ottla.wire.records.varint import SINGLE_BYTES, read_varint

MAX_RECORD_ERRORS = 100
"""Maximum number of invalid records of a batch that are reported to the client."""
_TIME_LIMIT = 1 << 62
"""Exclusive bound for timestamps and deltas, so that their sums always fit into 64 bits."""

_NULL_LENGTH = 1
"""The varint encoding of -1."""
_new_tuple = tuple.__new__

Header: TypeAlias = tuple[str, bytes | None]


class BatchRecord(NamedTuple):
    """A decoded record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


RecordTuple: TypeAlias = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]
"""The fields of a `Record` as a plain tuple."""
KeyedRecord: TypeAlias = tuple[int, int, bytes | None, bool]
"""The facts that compaction needs: offset, timestamp, key, and whether there is a value."""


class RecordSpan(NamedTuple):
    """The position of a record in the decompressed records of its batch."""

    offset: int
    timestamp: int
    start: int
    body: int
    """Position of the offset delta. From here on, the bytes do not depend on the base timestamp."""
    end: int


class KeyedSpan(NamedTuple):
    """A `RecordSpan` with the facts that compaction needs, found in the same pass."""

    offset: int
    timestamp: int
    start: int
    body: int
    end: int
    key: bytes | None
    has_value: bool


_Fields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""Start, body and end of a record, timestamp and offset deltas, start and length of key and value.

All positions are in the decompressed records. The length of a null is -1.
"""


def read_records(
    batch: Buffer, header: BatchHeader, max_size: int = compression.MAX_DECOMPRESSED
) -> bytes:
    """Return the decompressed records of the batch at `header.position`.

    Raises:
        BatchError: The data is damaged, or decompresses to more than `max_size` bytes.
    """
    section = memoryview(batch)[header.position + HEADER_SIZE : header.end]
    if not section and not header.record_count:
        return b""  # compaction removed every record, and with them the compressed block
    return compression.decompress(header.compression, section, max_size)


def iter_records(
    batch: Buffer, header: BatchHeader, max_size: int = compression.MAX_DECOMPRESSED
) -> Iterator[BatchRecord]:
    """Yield the records of a batch. Raises as `decode_records` does, before the first record."""
    return map(_new_tuple, repeat(BatchRecord), decode_records(batch, header, max_size))


def decode_records(  # noqa: C901
    batch: Buffer, header: BatchHeader, max_size: int = compression.MAX_DECOMPRESSED
) -> list[RecordTuple]:
    """Return all records of a batch as plain tuples, which cost a third less than `Record` objects.

    This is the loop of `_walk` with the same checks, but it also extracts the fields. Using `_walk`
    would take half as long again, because it is a generator.

    Raises:
        BatchError: The records do not parse, or decompress to more than `max_size` bytes.
    """
    data = read_records(batch, header, max_size)
    base_offset, base, fixed = header.base_offset, *_timestamps(header)
    position, size, last_delta, zigzag = 0, len(data), header.last_offset_delta, SINGLE_BYTES
    start = 0
    records: list[RecordTuple] = []
    append = records.append
    key: bytes | None
    value: bytes | None
    try:
        for _ in range(header.record_count):
            start = position
            if (byte := data[position]) < 0x80:
                position += 1
                end = position + zigzag[byte]
            elif (second := data[position + 1]) < 0x80 and not byte & 1:
                position += 2
                end = position + (byte >> 1 & 0x3F | second << 6)
            else:
                end, position = read_varint(data, position)
                end += position
            if end > size:
                break
            if (byte := data[position + 1]) < 0x80:
                time_delta = zigzag[byte]
                position += 2
            elif (second := data[position + 2]) < 0x80 and not byte & 1:
                time_delta = byte >> 1 & 0x3F | second << 6
                position += 3
            else:
                time_delta, position = read_varint(data, position + 1)
                if not -_TIME_LIMIT < time_delta < _TIME_LIMIT:
                    break
            if (byte := data[position]) < 0x80:
                delta = zigzag[byte]
                position += 1
            elif (second := data[position + 1]) < 0x80 and not byte & 1:
                delta = byte >> 1 & 0x3F | second << 6
                position += 2
            else:
                delta, position = read_varint(data, position)
            if (byte := data[position]) == _NULL_LENGTH:
                key = None
                position += 1
            else:
                if byte < 0x80:
                    length = zigzag[byte]
                    position += 1
                else:
                    length, position = read_varint(data, position)
                if length >= 0:
                    key = data[position : (position := position + length)]
                elif length == -1:
                    key = None
                else:
                    break
            if (byte := data[position]) < 0x80:
                length = zigzag[byte]
                position += 1
            elif (second := data[position + 1]) < 0x80 and not byte & 1:
                length = byte >> 1 & 0x3F | second << 6
                position += 2
            else:
                length, position = read_varint(data, position)
            if length >= 0:
                value = data[position : (position := position + length)]
            elif length == -1:
                value = None
            else:
                break
            if position >= end or not 0 <= delta <= last_delta:
                break
            append((
                base_offset + delta,
                base + time_delta if fixed is None else fixed,
                key,
                value,
                () if position + 1 == end and not data[position]
                else read_headers(data, position, end),
            ))  # fmt: skip
            position = end
        else:
            if position == size and header.record_count >= 0:
                return records
            raise _malformed(f"{size - position} bytes follow the last record")
    except IndexError:
        raise _malformed("the records end too early") from None
    raise _malformed(f"the record at byte {start} is malformed")


def iter_keys(
    batch: Buffer, header: BatchHeader, max_size: int = compression.MAX_DECOMPRESSED
) -> Iterator[KeyedRecord]:
    """Yield the key of each record. Values and headers are skipped unread."""
    data = read_records(batch, header, max_size)
    base_offset, base, fixed = header.base_offset, *_timestamps(header)
    for _, _, _, time_delta, delta, key_start, key_length, _, value_length in _walk(data, header):
        yield (
            base_offset + delta,
            base + time_delta if fixed is None else fixed,
            None if key_length < 0 else data[key_start : key_start + key_length],
            value_length >= 0,
        )


def record_spans(data: bytes, header: BatchHeader) -> Iterator[RecordSpan]:
    """Yield the position of each record in `data`, the result of `read_records` for `header`."""
    base_offset, base, fixed = header.base_offset, *_timestamps(header)
    for start, body, end, time_delta, delta, _, _, _, _ in _walk(data, header):
        timestamp = base + time_delta if fixed is None else fixed
        yield _new_tuple(RecordSpan, (base_offset + delta, timestamp, start, body, end))


def keyed_spans(data: bytes, header: BatchHeader) -> Iterator[KeyedSpan]:
    """Yield the position of each record in `data`, its key, and whether it has a value."""
    base_offset, base, fixed = header.base_offset, *_timestamps(header)
    for start, body, end, time_delta, delta, at, length, _, value_length in _walk(data, header):
        fields = (
            base_offset + delta,
            base + time_delta if fixed is None else fixed,
            start,
            body,
            end,
            None if length < 0 else data[at : at + length],
            value_length >= 0,
        )
        yield _new_tuple(KeyedSpan, fields)


def check_records(
    batch: Buffer,
    header: BatchHeader,
    require_keys: bool,
    max_size: int = compression.MAX_DECOMPRESSED,
) -> None:
    """Check every record of a batch from a producer.

    Args:
        batch: Buffer that contains the batch.
        header: Header of the batch.
        require_keys: Whether every record needs a key, as in a compacted topic.
        max_size: Maximum size of the decompressed records.

    Raises:
        BatchError: A record does not parse, has the wrong offset delta, or lacks a required key.
    """
    data = read_records(batch, header, max_size)
    _timestamps(header)
    keyless: list[int] = []
    for index, fields in enumerate(_walk(data, header)):
        _, _, end, _, delta, _, key_length, value_start, value_length = fields
        if delta != index:
            raise InvalidBatch(f"record {index} has offset delta {delta}")
        read_headers(data, value_start + max(value_length, 0), end)
        if key_length < 0:
            keyless.append(index)
    if require_keys and keyless:
        raise InvalidBatch(
            f"a compacted topic cannot accept records without a key; {len(keyless)} records have "
            "none",
            record_errors=tuple(
                (index, "a compacted topic cannot accept records without a key")
                for index in keyless[:MAX_RECORD_ERRORS]
            ),
        )


def _timestamps(header: BatchHeader) -> tuple[int, int | None]:
    """Return the base to which deltas are added, and the append time if it replaces all of them."""
    if not -_TIME_LIMIT < header.base_timestamp < _TIME_LIMIT:
        raise _malformed(f"the base timestamp {header.base_timestamp} is invalid")
    return header.base_timestamp, header.max_timestamp if header.timestamp_type else None


def _walk(data: bytes, header: BatchHeader) -> Iterator[_Fields]:  # noqa: C901
    """Yield the positions of each record's fields.

    This loop dominates the cost of reading. It decodes varints of one and two bytes inline, which
    is twice as fast as calling a function, and yields plain tuples. A length that exceeds its
    record is detected afterwards, because the position is then past the end of the record.
    """
    position, size, last_delta, zigzag = 0, len(data), header.last_offset_delta, SINGLE_BYTES
    start = 0
    try:
        for _ in range(header.record_count):
            start = position
            if (byte := data[position]) < 0x80:
                length = zigzag[byte]
                position += 1
            elif (second := data[position + 1]) < 0x80:
                length = (byte & 0x7F | second << 7) >> 1
                position += 2
                if byte & 1:
                    break
            else:
                length, position = read_varint(data, position)
            end = position + length
            if end > size:
                break
            if (byte := data[position + 1]) < 0x80:
                time_delta = zigzag[byte]
                body = position + 2
            elif (second := data[position + 2]) < 0x80:
                folded = byte & 0x7F | second << 7
                time_delta = (folded >> 1) ^ -(folded & 1)
                body = position + 3
            else:
                time_delta, body = read_varint(data, position + 1)
                if not -_TIME_LIMIT < time_delta < _TIME_LIMIT:
                    break
            if (byte := data[body]) < 0x80:
                delta = zigzag[byte]
                position = body + 1
            elif (second := data[body + 1]) < 0x80:
                folded = byte & 0x7F | second << 7
                delta = (folded >> 1) ^ -(folded & 1)
                position = body + 2
            else:
                delta, position = read_varint(data, body)
            if (byte := data[position]) < 0x80:
                key_length = zigzag[byte]
                key_start = position + 1
            else:
                key_length, key_start = read_varint(data, position)
            position = key_start + key_length if key_length > 0 else key_start
            if (byte := data[position]) < 0x80:
                value_length = zigzag[byte]
                value_start = position + 1
            elif (second := data[position + 1]) < 0x80:
                folded = byte & 0x7F | second << 7
                value_length = (folded >> 1) ^ -(folded & 1)
                value_start = position + 2
            else:
                value_length, value_start = read_varint(data, position)
            position = value_start + value_length if value_length > 0 else value_start
            if position >= end or key_length < -1 or value_length < -1:
                break
            if not 0 <= delta <= last_delta:
                break
            yield (
                start, body, end, time_delta, delta,
                key_start, key_length, value_start, value_length,
            )  # fmt: skip
            position = end
        else:
            if position == size and header.record_count >= 0:
                return
            raise _malformed(f"{size - position} bytes follow the last record")
    except IndexError:
        raise _malformed("the records end too early") from None
    raise _malformed(f"the record at byte {start} is malformed")


def read_headers(data: bytes, position: int, end: int) -> tuple[Header, ...]:
    """Return the headers of one record, which must end exactly at `end`."""
    if position + 1 == end and data[position] == 0:
        return ()
    try:
        count, position = read_varint(data, position)
        headers: list[Header] = []
        for _ in range(count):
            length, position = read_varint(data, position)
            start, position = position, position + length
            if length < 0 or position > end:
                break
            key = data[start:position].decode("utf-8", "replace")
            length, position = read_varint(data, position)
            start, position = position, position + max(length, 0)
            if length < -1:
                break
            headers.append((key, None if length < 0 else data[start:position]))
    except IndexError:
        raise _malformed("the records end too early") from None
    if position != end or len(headers) != count:
        raise _malformed("the headers of a record are malformed")
    return tuple(headers)


def _malformed(message: str) -> CorruptBatch:
    return CorruptBatch(message, ErrorCode.INVALID_RECORD)
