"""Finding a partition's producer state again: the newest snapshot that can be trusted, then the
batches behind it."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.ports import FileSystem, ReadableBuffer
from ottla.storage.producer_state import MalformedSnapshot, ProducerState
from ottla.storage.segment import Segment, segment_path
from ottla.wire.records.batch import NO_PRODUCER_ID, BatchHeader
from ottla.wire.records.builder import read_end_txn_marker

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
) -> None:
    """Make `state` what it was when the log ended at `end_offset`. Snapshots of a log that was
    longer once speak of batches that are gone: they are removed."""
    start_offset = _restore_newest_snapshot(fs, directory, end_offset, state)
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        if not is_last and segments[number + 1].base_offset <= start_offset:
            continue
        if segment.base_offset >= end_offset:
            break
        position = segment.offset_index.lookup(max(start_offset, segment.base_offset)).position
        for header in segment.iter_headers(position, wait=True):
            if header.base_offset >= end_offset:
                break
            if header.base_offset >= start_offset and header.producer_id != NO_PRODUCER_ID:
                batch = segment.read_batch(header) if header.is_control else b""
                state.update(header, header.base_offset, marker_of(batch, header))


def _restore_newest_snapshot(
    fs: FileSystem, directory: str, end_offset: int, state: ProducerState
) -> int:
    state.clear()
    for offset in sorted(snapshot_offsets(fs, directory), reverse=True):
        path = snapshot_path(directory, offset)
        if offset <= end_offset:
            try:
                state.restore(fs.read_bytes(path))
            except MalformedSnapshot:
                pass
            else:
                return offset
        fs.remove(path)
    return 0


def marker_of(batch: ReadableBuffer, header: BatchHeader) -> tuple[bool, int] | None:
    """(is it an abort, coordinator epoch) if the batch ends a transaction. Compaction may have
    emptied it: then it only tells its producer's epoch."""
    if not header.is_control or not header.record_count:
        return None
    marker = read_end_txn_marker(batch, header._replace(position=0))
    return None if marker is None else (not marker.commit, marker.coordinator_epoch)
