"""Removal of the oldest segments of a log, after retention or DeleteRecords.

Invariants
- The log start offset only grows, and never lies in a segment that was removed.
- The first segment that stays has its producer snapshot on disk: the state of the producers of the
  removed records can be restored after a power failure.
- Removed segments keep their files, marked `.deleted`, until no reader can need them any more.

Which segments have expired is decided in retention.py.
"""

from __future__ import annotations

from ottla.storage.log_state import LogState
from ottla.storage.producer_snapshots import snapshot_path
from ottla.storage.segment import DELETED_SUFFIX, Segment


def advance_start_offset(log: LogState, offset: int) -> None:
    """Advance the log start offset after DeleteRecords or retention."""
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_from_start(offset)


def detach_head(log: LogState, count: int, now_ms: int) -> list[Segment]:
    """Remove the oldest `count` segments from the log and mark their files `.deleted`.

    The caller deletes the files when no reader can need them any more. Fewer segments are
    removed if the first remaining one has no snapshot on disk yet: after a power failure, the
    state of the producers of the deleted records would be lost. The rest can be removed after
    the next flush.

    Returns:
        The removed segments.
    """
    if count >= len(log.segments):
        log.roll(now_ms)
        count = min(count, len(log.segments) - 1)
    unwritten = log.unwritten_snapshots()
    while count and log.segments[count].base_offset in unwritten:
        count -= 1
    if not count:
        return []
    removed = log.segments[:count]
    log.forget_segments(removed)
    advance_start_offset(log, log.segments[0].base_offset)
    return _mark_deleted(log, removed)


def _mark_deleted(log: LogState, removed: list[Segment]) -> list[Segment]:
    log.directory_changed = True  # the next flush also makes the removals durable
    for segment in removed:
        segment.change_suffix(DELETED_SUFFIX)
        log.pending_snapshots.pop(segment.base_offset, None)
        log.fs.remove(snapshot_path(log.directory, segment.base_offset))
    return removed
