"""Rewritten batches: with another compression, fewer records, or a delete horizon.

Offsets never change. A rewritten batch keeps its base offset, last offset delta, producer and
sequence, so that the log stays contiguous and the last sequence of a producer stays known.

The delete horizon is the time from which the tombstones or markers of a compacted batch may be
removed. It replaces baseTimestamp (attribute bit 6), and the timestamps of records become deltas
from it, so setting it rewrites the delta of every record. All other rewrites copy records
unchanged.
"""

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
    """Return a copy of a batch that is compressed with `codec`. Its records are not parsed."""
    header = read_header(batch)
    number = codec_id(codec) if isinstance(codec, str) else codec
    records = compress(number, read_records(batch, header, max_size), level)
    return _assemble(batch, header, header.attributes & ~COMPRESSION_MASK | number, records)


def with_delete_horizon(batch: Buffer, horizon_ms: int, level: int | None = None) -> bytearray:
    """Return a copy of a batch whose tombstones and markers may be removed at `horizon_ms`."""
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
    """Return a copy of the batch at `header` with only the records at `kept_offsets`."""
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
    """Return a copy of the batch at `header` with only the records at `spans`.

    Args:
        batch: Buffer that contains the batch.
        header: Header of the batch.
        data: The result of `read_records` for the batch.
        spans: Positions in `data` of the records to keep.
        delete_horizon: Delete horizon to set, or None to keep the current one.
        level: Compression level, or None for the default of the codec.
    """
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
    """Return the batch at `header` without records, which preserves its producer's sequence."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    copy = _assemble(batch, header, attributes, b"")
    _TIMESTAMPS.pack_into(copy, BASE_TIMESTAMP_AT, _NO_TIMESTAMP, header.max_timestamp)
    struct.pack_into(">i", copy, RECORD_COUNT_AT, 0)
    return seal(copy)


def _rebased(data: bytes, span: RecordSpan | KeyedSpan, base_timestamp: int) -> bytes:
    """Encode a record with its timestamp as a delta from `base_timestamp`."""
    delta = encode_varint(span.timestamp - base_timestamp)
    length = 1 + len(delta) + span.end - span.body
    return b"".join((encode_varint(length), b"\0", delta, data[span.body : span.end]))


def _assemble(batch: Buffer, header: BatchHeader, attributes: int, records: bytes) -> bytearray:
    start = header.position
    copy = bytearray(memoryview(batch)[start : start + HEADER_SIZE])
    copy += records
    struct.pack_into(">h", copy, ATTRIBUTES_AT, attributes)
    return seal(copy)
