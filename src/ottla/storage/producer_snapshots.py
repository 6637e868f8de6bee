"""Restoring the producer state of a partition from snapshots and batches.

The newest valid snapshot is loaded, and the batches after it are replayed. This recovers the full
state as long as the first segment of the log has a snapshot. Therefore a log deletes its oldest
segments only once the snapshot of the first remaining one is on disk (`Log.detach_head`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.base.ports import FileSystem, ReadableBuffer
from ottla.storage.producer_state import MalformedSnapshot, ProducerState
from ottla.storage.segment import Segment, segment_path
from ottla.wire.records.batch import NO_PRODUCER_ID, BatchHeader
from ottla.wire.records.builder import read_end_txn_marker
from ottla.wire.records.errors import BatchError

EXTENSION = ".snapshot"


def snapshot_path(directory: str, offset: int) -> str:
    return segment_path(directory, offset, "snapshot")


def snapshot_offsets(fs: FileSystem, directory: str) -> list[int]:
    return [
        int(name[: -len(EXTENSION)])
        for name in fs.list(directory)
        if name.endswith(EXTENSION) and name[: -len(EXTENSION)].isdigit()
    ]


def restore_producers(
    fs: FileSystem,
    directory: str,
    segments: Sequence[Segment],
    end_offset: int,
    state: ProducerState,
    *,
    unwritten: Mapping[int, bytes] | None = None,
    newest: int | None = None,
) -> int:
    """Restore `state` to what it was when the log ended at `end_offset`.

    Damaged batches are skipped: reads of them fail, but the log must open.

    Args:
        fs: File system that holds the log.
        directory: Directory of the log.
        segments: Segments of the log, in order.
        end_offset: Log end offset at which the state is wanted.
        state: The state to replace.
        unwritten: Snapshots that have not been flushed yet, by offset.
        newest: A snapshot after `end_offset` is used as well, up to this offset.

    Returns:
        The offset up to which the state is complete.
    """
    limit = end_offset if newest is None else max(end_offset, newest)
    start_offset = _restore_newest_snapshot(fs, directory, limit, unwritten or {}, state)
    if start_offset >= end_offset:
        return start_offset
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        if not is_last and segments[number + 1].base_offset <= start_offset:
            continue
        if segment.base_offset >= end_offset:
            break
        try:
            _replay(segment, start_offset, end_offset, state)
        except BatchError:
            continue
    return end_offset


def _replay(segment: Segment, start_offset: int, end_offset: int, state: ProducerState) -> None:
    for header in segment.headers_near(max(start_offset, segment.base_offset), wait=True):
        if header.base_offset >= end_offset:
            break
        if header.base_offset < start_offset or header.producer_id == NO_PRODUCER_ID:
            continue
        marker = None
        if header.is_control:
            try:
                marker = marker_of(segment.read_batch(header), header)
            except BatchError:
                continue
        state.update(header, header.base_offset, marker)


def _restore_newest_snapshot(
    fs: FileSystem,
    directory: str,
    end_offset: int,
    unwritten: Mapping[int, bytes],
    state: ProducerState,
) -> int:
    state.clear()
    for offset in sorted({*snapshot_offsets(fs, directory), *unwritten}, reverse=True):
        if offset <= end_offset:
            path = snapshot_path(directory, offset)
            try:
                state.restore(unwritten[offset] if offset in unwritten else fs.read_bytes(path))
            except MalformedSnapshot:
                fs.remove(path)
            else:
                return offset
    return 0


def remove_snapshots_after(fs: FileSystem, directory: str, end_offset: int) -> None:
    """Remove snapshots after the log end offset, which describe batches that no longer exist."""
    for offset in snapshot_offsets(fs, directory):
        if offset > end_offset:
            fs.remove(snapshot_path(directory, offset))


def remove_stray_snapshots(fs: FileSystem, directory: str, segments: Sequence[Segment]) -> None:
    """Remove snapshots except the newest one and those at the beginning of a segment.

    Clean shutdowns leave others.
    """
    offsets = sorted(snapshot_offsets(fs, directory))
    if len(offsets) > 1:
        wanted = {segment.base_offset for segment in segments} | {offsets[-1]}
        for offset in offsets:
            if offset not in wanted:
                fs.remove(snapshot_path(directory, offset))


def marker_of(batch: ReadableBuffer, header: BatchHeader) -> tuple[bool, int] | None:
    """Return (whether it is an abort, coordinator epoch) if the batch is a transaction marker.

    Returns None for an emptied marker, which compaction keeps only for its producer epoch.
    """
    if not header.is_control or not header.record_count:
        return None
    marker = read_end_txn_marker(batch, header._replace(position=0))
    return None if marker is None else (not marker.commit, marker.coordinator_epoch)
