"""New batches from old ones: compressed otherwise, with fewer records, or with a delete horizon.

Offsets never change: a rewritten batch keeps its base offset, last offset delta, producer and
sequence, so that a log stays dense in batches and a producer's last sequence stays known.

The delete horizon is the time at which a compacted batch's tombstones or markers may go. It takes
the place of baseTimestamp (attribute bit 6), and record timestamps are deltas from *it* then:
setting it writes every record's delta anew. All other rewriting copies records as they are."""

from __future__ import annotations

import struct
from collections.abc import Container, Sequence

from ottla.wire.records.batch import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    RECORD_COUNT_AT,
    BatchHeader,
    read_header,
    seal,
)
from ottla.wire.records.compression import MAX_DECOMPRESSED, codec_id, compress
from ottla.wire.records.crc import Buffer
from ottla.wire.records.record import KeyedSpan, RecordSpan, read_records, record_spans
from ottla.wire.records.varint import encode_varint

_NO_TIMESTAMP = -1
_TIMESTAMPS = struct.Struct(">qq")


def with_compression(
    batch: Buffer, codec: int | str, level: int | None = None, max_size: int = MAX_DECOMPRESSED
) -> bytearray:
    """A copy of this one batch, compressed with `codec`; its records are not looked at."""
    header = read_header(batch)
    number = codec_id(codec) if isinstance(codec, str) else codec
    records = compress(number, read_records(batch, header, max_size), level)
    return _assemble(batch, header, header.attributes & ~COMPRESSION_MASK | number, records)


def with_delete_horizon(batch: Buffer, horizon_ms: int, level: int | None = None) -> bytearray:
    """A copy of this one batch whose tombstones and markers may go at `horizon_ms`."""
    header = read_header(batch)
    everything = range(header.base_offset, header.next_offset)
    return retain_records(batch, header, everything, delete_horizon=horizon_ms, level=level)


def retain_records(
    batch: Buffer,
    header: BatchHeader,
    kept_offsets: Container[int],
    *,
    delete_horizon: int | None = None,
    level: int | None = None,
    max_size: int = MAX_DECOMPRESSED,
) -> bytearray:
    """A copy of the batch at `header` with only the records at `kept_offsets`."""
    data = read_records(batch, header, max_size)
    spans = [span for span in record_spans(data, header) if span.offset in kept_offsets]
    return retain_spans(batch, header, data, spans, delete_horizon=delete_horizon, level=level)


def retain_spans(
    batch: Buffer,
    header: BatchHeader,
    data: bytes,
    spans: Sequence[RecordSpan | KeyedSpan],
    *,
    delete_horizon: int | None = None,
    level: int | None = None,
) -> bytearray:
    """A copy of the batch at `header` with only the records at `spans` of `data`, which is what
    `read_records` gave for it."""
    if not spans:
        return emptied(batch, header)
    attributes, base = header.attributes, header.base_timestamp
    if delete_horizon is not None and delete_horizon != header.delete_horizon:
        attributes, base = attributes | DELETE_HORIZON_BIT, delete_horizon
        records = b"".join([_rebased(data, span, base) for span in spans])
    else:
        records = b"".join([data[span.start : span.end] for span in spans])
    copy = _assemble(batch, header, attributes, compress(header.compression, records, level))
    newest = max(span.timestamp for span in spans)
    _TIMESTAMPS.pack_into(copy, BASE_TIMESTAMP_AT, base, newest)
    struct.pack_into(">i", copy, RECORD_COUNT_AT, len(spans))
    return seal(copy)


def emptied(batch: Buffer, header: BatchHeader) -> bytearray:
    """The batch at `header` without records: it keeps a producer's last sequence in the log."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    copy = _assemble(batch, header, attributes, b"")
    _TIMESTAMPS.pack_into(copy, BASE_TIMESTAMP_AT, _NO_TIMESTAMP, header.max_timestamp)
    struct.pack_into(">i", copy, RECORD_COUNT_AT, 0)
    return seal(copy)


def _rebased(data: bytes, span: RecordSpan | KeyedSpan, base_timestamp: int) -> bytes:
    """A record whose timestamp is a delta from another base."""
    delta = encode_varint(span.timestamp - base_timestamp)
    length = 1 + len(delta) + span.end - span.body
    return b"".join((encode_varint(length), b"\0", delta, data[span.body : span.end]))


def _assemble(batch: Buffer, header: BatchHeader, attributes: int, records: bytes) -> bytearray:
    start = header.position
    copy = bytearray(memoryview(batch)[start : start + HEADER_SIZE])
    copy += records
    struct.pack_into(">h", copy, ATTRIBUTES_AT, attributes)
    return seal(copy)
