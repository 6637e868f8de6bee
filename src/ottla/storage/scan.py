"""Verification of batches in bytes that were read from disk.

Nothing read from a file is trusted. The CRC covers a batch from its attributes on. The fields
before it (offset, length, epoch, magic) are compared with the known state of the log and with the
neighboring batches: offsets must increase and stay within the segment, and epochs must match the
epoch cache. Compaction leaves gaps, so a batch may begin after the end of the previous one. Its
offset is then trusted only if the next batch, or the end of the segment, confirms it. The same
holds for the first batch, because the requested offset may lie inside it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from ottla.base.ports import ReadableBuffer
from ottla.storage.epoch_cache import NO_EPOCH
from ottla.wire.records.batch import HEADER_SIZE
from ottla.wire.records.crc import crc32c

_WALK = struct.Struct(">qiibI2xi")


class Expected(NamedTuple):
    """The known state of the log, with which the batches must agree."""

    offset: int
    """The requested offset; the first batch contains it or comes after it."""
    max_offset: int
    """Batches from this offset on are not visible to the reader, and may still be incomplete."""
    end_offset: int
    """An offset above that of every batch in the segment."""
    epoch: int
    """Leader epoch of the requested offset."""
    epoch_of: Callable[[int], int] | None
    """Function that returns the leader epoch of an offset; None if the segment has only one."""


class VerifiedPrefix(NamedTuple):
    size: int
    """Size of the batches that may be returned."""
    next_offset: int
    """First offset after those batches, or the requested offset if there are none."""
    is_corrupt: bool
    """Whether a damaged batch follows, as opposed to the end, a limit or an incomplete batch."""


def verified_prefix(buffer: ReadableBuffer, limit: int, expected: Expected) -> VerifiedPrefix:
    """Find the valid batches at the beginning of `buffer`.

    Args:
        buffer: Bytes from the log: `limit` bytes of batches, followed by one more batch header
            unless the segment ends before it.
        limit: Only batches that end within this many bytes are returned; what follows is only used
            to confirm them. It may exceed the buffer, which then ends where the segment ends: a
            visible batch that is longer than the rest of its segment is damaged.
        expected: The known state of the log.
    """
    offset, max_offset, end_offset, known_epoch, epoch_of = expected
    size, next_offset = 0, offset  # confirmed so far
    position, following = 0, offset  # current position of the scan
    is_exact = is_close = True
    last_start = len(buffer) - HEADER_SIZE
    unpack, checksum = _WALK.unpack_from, crc32c
    with memoryview(buffer) as view:
        while position <= last_start:
            base_offset, length, epoch, magic, crc, delta = unpack(view, position)
            last_offset = base_offset + delta
            if magic != 2 or length < 49 or delta < 0:
                if is_close:
                    size, next_offset = position, following
                return VerifiedPrefix(size, next_offset, True)
            if base_offset < following if position else last_offset < offset:
                if is_exact:
                    size, next_offset = position, following
                return VerifiedPrefix(size, next_offset, True)
            size, next_offset = position, following
            if base_offset >= max_offset and (position or last_offset < end_offset):
                return VerifiedPrefix(size, next_offset, False)
            if epoch_of is not None and base_offset > offset:
                known_epoch = epoch_of(base_offset)
            if last_offset >= end_offset or (epoch != known_epoch and known_epoch != NO_EPOCH):
                return VerifiedPrefix(size, next_offset, True)
            stop = position + length + 12
            if stop > limit:
                return VerifiedPrefix(size, next_offset, False)
            if stop > len(view) or checksum(view[position + 21 : stop]) != crc:
                return VerifiedPrefix(size, next_offset, True)
            is_exact = position > 0 and base_offset == following
            is_close = base_offset <= following
            position, following = stop, last_offset + 1
    return VerifiedPrefix(position, following, False)


def holds_intact_batches(buffer: ReadableBuffer) -> bool:
    """Return whether `buffer` consists entirely of complete batches with correct CRCs."""
    position, end = 0, len(buffer)
    unpack, checksum = _WALK.unpack_from, crc32c
    with memoryview(buffer) as view:
        while position + HEADER_SIZE <= end:
            _, length, _, magic, crc, _ = unpack(view, position)
            stop = position + length + 12
            is_whole = magic == 2 and length >= 49 and stop <= end
            if not is_whole or checksum(view[position + 21 : stop]) != crc:
                return False
            position = stop
    return position == end
