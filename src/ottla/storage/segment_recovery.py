"""Checks and repair of one segment after a crash.

Data below the safe offset (the recovery point of the log) had been synced. Damage there is not an
unfinished write, and truncating would discard the good batches after it, so it stays in place and
reads of it fail. If the bytes after a damaged batch are not a batch, they stay too, because the
damage may be in the length of the batch. At or above the safe offset, the first bad batch ends the
log.

A batch is good if its CRC matches and the fields outside the CRC are plausible. Its base offset
must be the end of the previous good batch. Compaction leaves gaps, so it may also be larger, but
then the batch must end before the next one begins. Below the safe offset, its leader epoch must
agree with the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import NamedTuple

from ottla.storage.index import OffsetPosition
from ottla.storage.segment import Segment
from ottla.wire.records.batch import HEADER_SIZE, MAGIC, BatchHeader, read_header, validate
from ottla.wire.records.errors import BatchError

RECOVERY_CHUNK_BYTES = 4_194_304

OnBatch = Callable[[BatchHeader, memoryview], None]
IsKnown = Callable[[BatchHeader], bool]


class Recovered(NamedTuple):
    next_offset: int
    """First offset after the last batch that was identified."""
    cut_bytes: int
    damaged: int
    """Number of unreadable places that were kept because they had been synced."""
    is_whole: bool
    """False if the end of the segment cannot be determined; it must not be appended to."""


class _Found(NamedTuple):
    header: BatchHeader
    batch: memoryview | None
    """None if the batch is damaged but has a plausible length."""


def recovery_start(segment: Segment, safe_offset: int) -> OffsetPosition:
    """Return the base offset and the position of the first batch that recovery checks.

    This is the last indexed batch before `safe_offset` if the indexes can be trusted that far, and
    the beginning of the segment otherwise.
    """
    start = OffsetPosition(segment.base_offset, 0)
    if safe_offset <= segment.base_offset or not segment.indexes_are_sane():
        return start
    if not (segment.offset_index.is_rising() and segment.time_index.is_rising()):
        return start
    entry = segment.offset_index.lookup(safe_offset)
    if not entry.position:
        return start
    found = next(_batches(segment, entry.position), None)
    if found is None or found.batch is None or found.header.last_offset != entry.offset:
        return start
    return OffsetPosition(found.header.base_offset, entry.position)


def recover_segment(
    segment: Segment,
    safe_offset: int,
    end_offset: int | None,
    index_interval_bytes: int,
    is_known: IsKnown,
    on_batch: OnBatch,
) -> Recovered:
    """Check every batch from `recovery_start` on, rebuild the indexes, and cut off a bad tail.

    Args:
        segment: The segment to recover.
        safe_offset: Recovery point of the log.
        end_offset: Base offset of the next segment, or None for the last one.
        index_interval_bytes: Distance between index entries.
        is_known: Returns whether the leader epoch of a batch can be right.
        on_batch: Called with each good batch.
    """
    expected, position = recovery_start(segment, safe_offset)
    segment.truncate_indexes(position, expected)
    good, damaged, ends_whole = position, 0, True
    batches = chain(_batches(segment, position), [None])
    for found, successor in pairwise(batches):
        assert found is not None
        header = found.header
        room = _room(successor, end_offset)
        is_whole = found.batch is not None and is_known(header)
        if is_whole and _is_in_line(header, expected, room, safe_offset):
            assert found.batch is not None
            on_batch(header, found.batch)
            _index(segment, header, index_interval_bytes)
            expected = header.next_offset
        elif expected < safe_offset:
            damaged += 1
            if _is_believable(header, expected, successor, safe_offset):
                expected = header.next_offset
            is_whole = False
        else:
            break
        good, ends_whole = header.end, is_whole
    is_lost = expected < safe_offset and (good < segment.size or damaged)
    if is_lost or (good < segment.size and not ends_whole):
        _save_indexes(segment)
        return Recovered(expected, 0, damaged + (good < segment.size), is_whole=False)
    cut = segment.size - good
    if cut:
        segment.truncate_file(good)
    _save_indexes(segment)
    return Recovered(expected, cut, damaged, is_whole=True)


def rebuild_indexes(segment: Segment, index_interval_bytes: int) -> bool:
    """Rebuild the offset and time indexes of a sealed segment from its batch headers.

    Returns:
        False if some headers could not be read.
    """
    segment.reset_sparse_indexes()
    is_whole = True
    try:
        for header in segment.iter_headers(0, wait=True):
            _index(segment, header, index_interval_bytes)
    except BatchError:
        is_whole = False
    _save_indexes(segment)
    return is_whole


def _room(successor: _Found | None, end_offset: int | None) -> int | None:
    """Return the offset at which the batch before `successor` must end, or None if unknown."""
    if successor is None:
        return end_offset
    return None if successor.batch is None else successor.header.base_offset


def _is_in_line(header: BatchHeader, expected: int, room: int | None, safe_offset: int) -> bool:
    """Return whether the offsets of a batch with a correct CRC are plausible."""
    if header.base_offset <= expected:
        return header.base_offset == expected
    if room is not None:
        return header.next_offset <= room
    # No later batch confirms the gap. The batch follows an offset below the safe offset, so it was
    # written before the log had been synced up to there and cannot extend beyond it, even though it
    # claims to. Compaction, which leaves gaps, never touches the last segment.
    return not expected < safe_offset < header.next_offset


def _is_believable(
    header: BatchHeader, expected: int, successor: _Found | None, safe_offset: int
) -> bool:
    """Return whether a damaged batch plausibly spans the offsets that its header claims."""
    return (
        header.base_offset == expected
        and header.last_offset_delta >= 0
        and header.next_offset <= safe_offset
        and (successor is None or header.next_offset <= successor.header.base_offset)
    )


def _index(segment: Segment, header: BatchHeader, index_interval_bytes: int) -> None:
    """Add a batch of the log file to the indexes, as an append would."""
    segment.record_batch(
        header.position, header.size, header.last_offset, header.max_timestamp, index_interval_bytes
    )


def _save_indexes(segment: Segment) -> None:
    """Write the indexes if possible. If the disk is full, the log opens anyway.

    The transaction index is made durable first, because the next recovery does not look for aborted
    transactions before an indexed batch.
    """
    segment.seal()
    try:
        if segment.txn_index.is_unsynced:
            segment.txn_index.flush()
            segment.txn_index.sync()
            segment.fs.sync_directory(segment.directory)
        segment.flush_indexes()
    except OSError:
        pass


def _batches(segment: Segment, position: int) -> Iterator[_Found]:
    """Yield everything that looks like a batch, with its position in the file."""
    chunk, start = memoryview(b""), position
    while segment.size - position >= HEADER_SIZE:
        if start + len(chunk) - position < HEADER_SIZE:
            chunk, start = _chunk(segment, position, RECOVERY_CHUNK_BYTES), position
        try:
            header = read_header(chunk, position - start)
        except BatchError:
            return
        if header.magic != MAGIC or not HEADER_SIZE <= header.size <= segment.size - position:
            return
        if header.end > len(chunk):
            length = max(header.size, RECOVERY_CHUNK_BYTES)
            chunk, start = _chunk(segment, position, length), position
            header = header._replace(position=0)
        batch: memoryview | None = chunk[header.position : header.end]
        try:
            validate(chunk, header.position, header)
        except BatchError:
            batch = None
        yield _Found(header._replace(position=position), batch)
        position += header.size


def _chunk(segment: Segment, position: int, length: int) -> memoryview:
    return memoryview(segment.read_bytes(position, length, wait=True))
