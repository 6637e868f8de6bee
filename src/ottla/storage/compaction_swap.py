"""Replacement of segments by a compacted one.

Invariants
- At every moment, recovery finds either the old segments or the new one complete: the new one gets
  the suffix `.swap` when it is complete, and only then are the old ones marked `.deleted`.
- No snapshot remains for a segment that no longer begins at its offset.
- The segment after the compacted one has its snapshot on disk, which shows recovery that a gap
  before it is not data loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from ottla.base.ports import write_unsynced
from ottla.storage.log_state import LogState
from ottla.storage.producer_snapshots import snapshot_path
from ottla.storage.segment import DELETED_SUFFIX, Segment

_base_offset = attrgetter("base_offset")


def replace_segments(log: LogState, new: Segment, old: Sequence[Segment]) -> list[Segment]:
    """Replace segments by a compacted one, whose `.cleaned` files must be synced.

    This is crash-safe: the suffix `.swap` marks the new segment as complete, so that the old
    ones may be removed. The first and the last step block on the disk; the broker runs them in
    threads.
    """
    new.commit_cleaned()
    removed = swap_segments(log, new, old)
    log.fs.sync_directory(log.directory)
    return removed


def swap_segments(log: LogState, new: Segment, old: Sequence[Segment]) -> list[Segment]:
    """Exchange the files and the list of segments: the middle step of `replace_segments`.

    Returns:
        The old segments, marked `.deleted`.
    """
    gone = {segment.base_offset for segment in old}
    kept = [s for s in log.segments if s.base_offset not in gone]
    for segment in old:
        segment.change_suffix(DELETED_SUFFIX)
    new.change_suffix("")
    log.use_segments(sorted([*kept, new], key=_base_offset))
    for base_offset in gone - {new.base_offset}:
        log.pending_snapshots.pop(base_offset, None)
        log.fs.remove(snapshot_path(log.directory, base_offset))
    _write_next_snapshot(log, new)
    return list(old)


def _write_next_snapshot(log: LogState, compacted: Segment) -> None:
    """Write the snapshot of the segment after a compacted one, if it is not on disk yet.

    Compaction may leave a gap at the end of a segment. The snapshot of the next segment shows
    recovery that the gap is not data loss, so it must not wait for the next flush.
    """
    later = [s.base_offset for s in log.segments if s.base_offset > compacted.base_offset]
    for snapshots in (log.pending_snapshots, log.flush_job.snapshots if log.flush_job else {}):
        if later and later[0] in snapshots:
            path = snapshot_path(log.directory, later[0])
            write_unsynced(log.fs, path, snapshots[later[0]])
