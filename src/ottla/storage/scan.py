"""Walking batches in bytes that came from a disk.

Nothing read from a file is believed. The CRC covers a batch from its attributes on; what lies
before it (offset, length, epoch, magic) is held against its neighbours instead: offsets grow, stay
within the log, and a batch that leaves a gap (compaction makes gaps) must not run into the next."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.base.ports import ReadableBuffer
from ottla.wire.records.batch import HEADER_SIZE
from ottla.wire.records.crc import crc32c

_WALK = struct.Struct(">qiibI2xi")


class VerifiedPrefix(NamedTuple):
    size: int
    """Bytes of whole batches that may be served."""
    next_offset: int
    """After the last of them; the offset asked for if there are none."""
    is_corrupt: bool
    """Whether a damaged batch follows, rather than an end, a limit or a part of a batch."""


def verified_prefix(
    buffer: ReadableBuffer, offset: int, max_offset: int, log_end_offset: int, max_epoch: int
) -> VerifiedPrefix:
    """The good batches at the front of `buffer`, which was read for `offset`, of those that begin
    below `max_offset`."""
    end = len(buffer)
    last_start = end - HEADER_SIZE
    position = certain = 0
    expected = certain_next = offset
    unpack, checksum = _WALK.unpack_from, crc32c
    with memoryview(buffer) as view:
        while position <= last_start:
            base_offset, length, epoch, magic, crc, delta = unpack(view, position)
            stop = position + length + 12
            last_offset = base_offset + delta
            if (
                magic != 2
                or length < 49
                or delta < 0
                or last_offset >= log_end_offset
                or epoch > max_epoch
                or (base_offset < expected if position else last_offset < offset)
            ):
                return VerifiedPrefix(certain, certain_next, True)
            certain, certain_next = position, expected
            if stop > end or base_offset >= max_offset:
                break
            if checksum(view[position + 21 : stop]) != crc:
                return VerifiedPrefix(certain, certain_next, True)
            position = stop
            if base_offset <= expected:
                certain, certain_next = position, last_offset + 1
            expected = last_offset + 1
    return VerifiedPrefix(position, expected, False)
