"""A batch's bytes as the records that a user is handed. Pure.

The same format and the same refusals as `wire.records.record`, whose walk this repeats because a
generator and a tuple between it and the user would cost more than the walk itself. Batches whose
offsets have no gaps, which is all but compacted ones, need not read offsets at all."""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.client.consumer.record import Record
from ottla.wire.records.batch import BatchHeader
from ottla.wire.records.crc import Buffer
from ottla.wire.records.errors import CorruptBatch
from ottla.wire.records.record import read_headers, read_records
from ottla.wire.records.varint import SINGLE_BYTES, read_varint

_TIME_LIMIT = 1 << 62
_new_tuple = tuple.__new__


def decode_batch(
    batch: Buffer, header: BatchHeader, topic: str, partition: int
) -> list[Record]:  # fmt: skip
    """The records of the batch at `header.position`, whose checksum has been compared."""
    data = read_records(batch, header)
    base_time = header.base_timestamp
    if not -_TIME_LIMIT < base_time < _TIME_LIMIT:
        raise _malformed(f"the base timestamp {base_time} is impossible")
    found: list[Record] = []
    try:
        end = _decode(data, header, topic, partition, found)
    except IndexError:
        raise _malformed("the records end too early") from None
    if end != len(data):
        raise _malformed(f"record {len(found)} of the batch does not parse")
    return found


def _decode(  # noqa: C901
    data: bytes, header: BatchHeader, topic: str, partition: int, found: list[Record]
) -> int:
    """Fill `found`; where the last record that parses ends."""
    size, last_delta, zigzag, new = len(data), header.last_offset_delta, SINGLE_BYTES, _new_tuple
    base_offset, base_time, epoch = header.base_offset, header.base_timestamp, header.leader_epoch
    kind = header.timestamp_type
    fixed_time = header.max_timestamp
    append, position, record = found.append, 0, Record
    for _ in range(header.record_count):
        start = position
        if (byte := data[position]) < 0x80:
            end = position + 1 + zigzag[byte]
            position += 2
        elif (second := data[position + 1]) < 0x80:
            end = position + 2 + ((byte & 0x7F | second << 7) >> 1)
            position += 3
        else:
            length, position = read_varint(data, position)
            end = position + length
            position += 1
        if (byte := data[position]) < 0x80:
            time = base_time + zigzag[byte]
            position += 1
        elif (second := data[position + 1]) < 0x80:
            folded = byte & 0x7F | second << 7
            time = base_time + ((folded >> 1) ^ -(folded & 1))
            position += 2
        else:
            time, position = read_varint(data, position)
            if not -_TIME_LIMIT < time < _TIME_LIMIT:
                return start
            time += base_time
        if (byte := data[position]) < 0x80:
            delta = zigzag[byte]
            position += 1
        elif (second := data[position + 1]) < 0x80:
            delta = (byte & 0x7F | second << 7) >> 1
            position += 2
        else:
            delta, position = read_varint(data, position)
        if (byte := data[position]) == 1:
            key = None
            position += 1
        else:
            length, position = read_varint(data, position)
            key = data[position : position + length]
            position += length
            if length < 0:
                return start
        if (byte := data[position]) < 0x80:
            length = zigzag[byte]
            position += 1
        elif (second := data[position + 1]) < 0x80:
            length = (byte & 0x7F | second << 7) >> 1
            position += 2
        else:
            length, position = read_varint(data, position)
        if length >= 0:
            value = data[position : (position := position + length)]
        elif length == -1:
            value = None
        else:
            return start
        if position + 1 == end and data[position] == 0:
            headers: tuple[tuple[str, bytes | None], ...] = ()
        elif position >= end or end > size:
            return start
        else:
            headers = read_headers(data, position, end)
        if not 0 <= delta <= last_delta:
            return start
        append(new(record, (
            topic, partition, base_offset + delta, fixed_time if kind else time, kind,
            key, value, headers, epoch,
        )))  # fmt: skip
        position = end
    return position


def _malformed(message: str) -> CorruptBatch:
    return CorruptBatch(message, ErrorCode.INVALID_RECORD)
