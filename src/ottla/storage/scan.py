"""Walking batches in bytes that came from a disk.

Nothing read from a file is believed. The CRC covers a batch from its attributes on; what lies
before it (offset, length, epoch, magic) is held against what is known of the log and against its
neighbours: offsets grow and stay within the segment, epochs are the log's. Compaction leaves gaps,
so a batch may begin later than the last one ended; then its own offset is believed only when the
next batch, or the end of the segment, leaves room for it; so is that of the first, whose reader may
have asked for an offset inside it."""

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
    """What a log knows of the batches that a reader asks for."""

    offset: int
    """The one asked for: the first batch holds it, or follows it."""
    max_offset: int
    """Batches from here on are not for the reader, and may still be in the making."""
    end_offset: int
    """No batch of the segment reaches this."""
    epoch: int
    """Of the offset asked for."""
    epoch_of: Callable[[int], int] | None
    """Tells other offsets' epochs; None if they are the same throughout the segment."""


class VerifiedPrefix(NamedTuple):
    size: int
    """Bytes of whole batches that may be served."""
    next_offset: int
    """After the last of them; the offset asked for if there are none."""
    is_corrupt: bool
    """Whether a damaged batch follows, rather than an end, a limit or a part of a batch."""


def verified_prefix(buffer: ReadableBuffer, limit: int, expected: Expected) -> VerifiedPrefix:
    """The good batches at the front of `buffer`, of those that end within `limit` bytes. What lies
    behind the limit (a header, unless the segment ends) is only looked at."""
    offset, max_offset, end_offset, known_epoch, epoch_of = expected
    size, next_offset = 0, offset  # good for certain
    position, following = 0, offset  # where the walk is
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
            if checksum(view[position + 21 : stop]) != crc:
                return VerifiedPrefix(size, next_offset, True)
            is_exact = position > 0 and base_offset == following
            is_close = base_offset <= following
            position, following = stop, last_offset + 1
    return VerifiedPrefix(position, following, False)


def holds_intact_batches(buffer: ReadableBuffer) -> bool:
    """Whether there is nothing but whole, undamaged batches in it, one after another."""
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
