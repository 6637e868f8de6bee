"""A v2 record batch and its header.

    offset  size  field
         0     8  baseOffset             of the first record; set by the broker
         8     4  batchLength            bytes that follow this field: total size - 12
        12     4  partitionLeaderEpoch   set by the broker
        16     1  magic                  2
        17     4  crc                    CRC-32C of everything from byte 21 to the end
        21     2  attributes             bits 0-2 compression, 3 timestamp type, 4 transactional,
                                         5 control, 6 baseTimestamp is a delete horizon
        23     4  lastOffsetDelta        last offset - baseOffset, kept by compaction
        27     8  baseTimestamp          of the first record, or the delete horizon
        35     8  maxTimestamp           of all records, or the append time
        43     8  producerId             -1 without idempotence
        51     2  producerEpoch
        53     4  baseSequence           of the first record; wraps from 2^31-1 to 0
        57     4  recordCount            records inside; fewer than offsets after compaction
        61        records, compressed as one block unless compression is 0

All integers are big-endian. The fields that the broker sets (in the first 16 bytes) lie outside the
CRC, so a batch is stamped without changing or copying the rest. A buffer holds batches back to
back. It may end with a partial batch, because reads stop at byte limits.

Invariant: a `BatchHeader` holds the fields as they are in the buffer, unverified. Only `validate`
(for a batch that was produced or found by recovery) and `verified_extent` (for consecutive batches
of an unknown log) verify anything. Fetches use storage/scan.py, which knows the log and checks
more.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from ottla.base.errors import ErrorCode
from ottla.wire.records.crc import Buffer, combine, crc32c
from ottla.wire.records.errors import BatchError, CorruptBatch, InvalidBatch, UnsupportedMagic

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Size of the fields that batchLength does not count."""
MIN_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD
STAMP_SIZE = 16
"""Size of the prefix that the broker sets: base offset, length, leader epoch."""

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
CHECKED_FROM = ATTRIBUTES_AT
"""Start of the bytes that the CRC covers."""
LAST_OFFSET_DELTA_AT = 23
BASE_TIMESTAMP_AT = 27
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
PRODUCER_EPOCH_AT = 51
BASE_SEQUENCE_AT = 53
RECORD_COUNT_AT = 57

MAGIC = 2
COMPRESSION_MASK = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
LAST_COMPRESSION = 4
BROKER_BITS = APPEND_TIME_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
"""Attribute bits that clients may not set."""
MAX_SEQUENCE = 0x7FFFFFFF
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

HEADER_STRUCT = struct.Struct(">qiibIhiqqqhii")
_STAMP = struct.Struct(">qii")
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")
_EXTENT = struct.Struct(">qi4xbI2xi")
_unpack_header = HEADER_STRUCT.unpack_from
_unpack_length = _LENGTH.unpack_from
_new_tuple = tuple.__new__


class BatchHeader(NamedTuple):
    """The fields in the first 61 bytes of a batch, and their position in the buffer."""

    position: int
    size: int
    """Size of the whole batch, including its header."""
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def end(self) -> int:
        """Position in the buffer where the batch ends and the next one begins."""
        return self.position + self.size

    @property
    def compression(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """0 for the producer's time (CreateTime), 1 for the broker's (LogAppendTime)."""
        return (self.attributes & APPEND_TIME_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def delete_horizon(self) -> int | None:
        """Time in ms from which tombstones and markers may be removed; None if not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE


class Extent(NamedTuple):
    """The part of a buffer that consists of complete, valid batches, and why it ends."""

    size: int
    """Size of the valid batches."""
    next_offset: int
    """Offset after the last valid batch; -1 if there is none."""
    is_corrupt: bool
    """Whether the next batch is damaged, as opposed to incomplete or absent."""


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position` without verifying it.

    Raises:
        BatchError: Fewer than 61 bytes are available.
    """
    try:
        offset, length, epoch, magic, crc, bits, delta, base, newest, producer, era, sequence, n = (
            _unpack_header(buffer, position)
        )
    except struct.error:
        _refuse_short(buffer, position)
    # Spelled out, and without the NamedTuple's own constructor: 0.6 µs instead of 0.9 µs.
    return _new_tuple(BatchHeader, (
        position, length + 12, offset, epoch, magic, crc, bits,
        delta, base, newest, producer, era, sequence, n,
    ))  # fmt: skip


def iter_headers(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[BatchHeader]:
    """Yield the headers of all complete batches up to `end`. A partial last batch is left out.

    Raises:
        BatchError: A batch has an impossible length.
    """
    if end is None:
        end = len(buffer)
    last_start = end - HEADER_SIZE
    while position <= last_start:
        header = read_header(buffer, position)
        size = header.size
        if size < HEADER_SIZE:
            raise _wrong_size(buffer, position)
        position += size
        if position > end:
            return
        yield header


def validate(
    buffer: Buffer, position: int, header: BatchHeader, *, from_client: bool = False
) -> None:
    """Check that the batch at `position` is complete, intact and allowed.

    Args:
        buffer: Buffer that contains the batch.
        position: Position of the batch.
        header: Header of the batch.
        from_client: Whether to apply the rules for producers: records are numbered without gaps
            from base offset 0, and control batches, append times and delete horizons are not
            allowed.

    Raises:
        CorruptBatch: The batch is damaged or incomplete.
        InvalidBatch: The batch violates a rule.
    """
    size = header.size
    end = position + size
    if header.magic != MAGIC or size < HEADER_SIZE or end > len(buffer):
        raise _malformed(buffer, position, header)
    if crc32c(memoryview(buffer)[position + CHECKED_FROM : end]) != header.crc:
        raise CorruptBatch(f"the batch at byte {position} does not match its CRC")
    attributes = header.attributes
    if attributes & COMPRESSION_MASK > LAST_COMPRESSION:
        raise InvalidBatch(f"unknown compression {attributes & COMPRESSION_MASK}")
    count, delta = header.record_count, header.last_offset_delta
    if from_client:
        if count != delta + 1 or count < 1 or header.base_offset or attributes & BROKER_BITS:
            raise _not_for_clients(header)
        if header.base_sequence < 0 <= header.producer_id:
            raise InvalidBatch(
                f"producer {header.producer_id} sent a batch without a sequence number"
            )
    elif not 0 <= count <= delta + 1 or delta < 0:
        raise InvalidBatch(f"{count} records cannot span {delta + 1} offsets")


def verified_extent(buffer: Buffer, end: int | None = None, position: int = 0) -> Extent:
    """Find the valid batches from `position` to `end`, checking the magic and CRC of each."""
    if end is None:
        end = len(buffer)
    start, next_offset, is_corrupt = position, -1, False
    unpack, checksum, last_start = _EXTENT.unpack_from, crc32c, end - HEADER_SIZE
    with memoryview(buffer) as view:
        while position <= last_start:
            base_offset, length, magic, crc, delta = unpack(view, position)
            if length < 49 or magic != 2:
                is_corrupt = True
                break
            stop = position + length + 12
            if stop > end:
                break
            if checksum(view[position + 21 : stop]) != crc:
                is_corrupt = True
                break
            position = stop
            next_offset = base_offset + delta + 1
    return Extent(position - start, next_offset, is_corrupt)


def stamped_prefix(base_offset: int, leader_epoch: int, batch: Buffer) -> bytes:
    """Return the first 16 bytes of `batch` as the broker stores them. The rest is unchanged."""
    return _STAMP.pack(base_offset, _unpack_length(batch, LENGTH_AT)[0], leader_epoch)


def seal(batch: bytearray) -> bytearray:
    """Set the length and the CRC of `batch` in place, and return it."""
    _LENGTH.pack_into(batch, LENGTH_AT, len(batch) - LOG_OVERHEAD)
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return batch


def stamp_producer(
    batch: bytearray | memoryview,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    transactional: bool = False,
    records_crc: int | None = None,
) -> None:
    """Set the producer of a batch in place, which is known only when the batch is sent.

    If the CRC of what follows the header is known, the records are not read again."""
    _PRODUCER.pack_into(batch, PRODUCER_ID_AT, producer_id, producer_epoch, base_sequence)
    bits = batch[ATTRIBUTES_AT + 1]
    batch[ATTRIBUTES_AT + 1] = (
        bits | TRANSACTIONAL_BIT if transactional else bits & ~TRANSACTIONAL_BIT
    )
    view = memoryview(batch)
    if records_crc is None:
        checksum = crc32c(view[CHECKED_FROM:])
    else:
        header_crc = crc32c(view[CHECKED_FROM:HEADER_SIZE])
        checksum = combine(header_crc, records_crc, len(batch) - HEADER_SIZE)
    _CRC.pack_into(batch, CRC_AT, checksum)


def with_append_time(batch: Buffer, timestamp_ms: int) -> bytearray:
    """Return a copy of a batch whose records all have the broker's time."""
    copy = bytearray(batch)
    copy[ATTRIBUTES_AT + 1] |= APPEND_TIME_BIT
    struct.pack_into(">q", copy, MAX_TIMESTAMP_AT, timestamp_ms)
    return seal(copy)


def _refuse_short(buffer: Buffer, position: int) -> NoReturn:
    available = len(buffer) - position
    if available > MAGIC_AT and buffer[position + MAGIC_AT] < MAGIC:
        raise UnsupportedMagic(f"message format {buffer[position + MAGIC_AT]} is not supported")
    raise CorruptBatch(f"{max(available, 0)} bytes at {position} are too few for a batch header")


def _wrong_size(buffer: Buffer, position: int) -> BatchError:
    length = _unpack_length(buffer, position + LENGTH_AT)[0]
    if 0 <= buffer[position + MAGIC_AT] < MAGIC and length > 0:
        return UnsupportedMagic(f"message format {buffer[position + MAGIC_AT]} is not supported")
    return CorruptBatch(f"the batch at byte {position} has the invalid length {length}")


def _malformed(buffer: Buffer, position: int, header: BatchHeader) -> BatchError:
    if header.magic in (0, 1):
        return UnsupportedMagic(f"message format {header.magic} is not supported")
    if header.magic != MAGIC:
        return CorruptBatch(f"the batch at byte {position} has unknown magic {header.magic}")
    if header.size < HEADER_SIZE:
        return _wrong_size(buffer, position)
    available = len(buffer) - position
    return CorruptBatch(
        f"the batch at byte {position} is incomplete: {available} of {header.size} bytes are "
        "present"
    )


def _not_for_clients(header: BatchHeader) -> BatchError:
    if header.is_control:
        return InvalidBatch("clients may not write control batches")
    if header.timestamp_type:
        return InvalidBatch(
            "producers may not set the timestamp type to LogAppendTime", ErrorCode.INVALID_TIMESTAMP
        )
    if header.has_delete_horizon:
        return InvalidBatch("clients may not set a delete horizon")
    if header.base_offset:
        return InvalidBatch(f"a produced batch starts at offset 0, not {header.base_offset}")
    return InvalidBatch(
        f"{header.record_count} records do not fill {header.last_offset_delta + 1} offsets"
    )
