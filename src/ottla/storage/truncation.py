"""Truncation of a log, for a follower that diverged from its leader.

Invariants
- The removal of records is durable before anything is written in their place: a power failure never
  leaves a mixture of two histories.
- Afterwards the recovery point, the leader epochs and the producer state describe exactly the
  records that remain. Flush jobs that began before make nothing durable.
- The first segment stays, even if it becomes empty, unless all records are discarded: its snapshot
  holds the state of earlier producers.

A truncation may run in another thread, while `LogState.is_truncating` keeps everything else from
changing the log. Readers wait for the gate (flush.py) and start over.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.storage.log_reader import segments_from
from ottla.storage.log_state import LogState
from ottla.storage.producer_snapshots import remove_snapshots_after, restore_producers
from ottla.storage.segment import Segment


def begin_truncation(log: LogState) -> None:
    """Announce a truncation. Flush jobs in progress no longer make anything durable."""
    log.is_truncating = True
    log.gate.truncations += 1


def end_truncation(log: LogState) -> None:
    """Allow other changes again after `begin_truncation`."""
    log.is_truncating = False


def truncate_to(log: LogState, offset: int, now_ms: int) -> None:
    """Discard all records from `offset` on, for a follower that diverged from its leader.

    Before the call, the recovery point in the checkpoint file must not exceed
    `end_after_truncation(offset)`, because a power failure during the truncation may leave
    any mixture of the files above that point.
    """
    if offset >= log.log_end_offset:
        return
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset, now_ms)
        return
    written_end = end_after_truncation(log, offset)
    # The first segment stays even if it becomes empty: its snapshot holds earlier producers.
    removed = [segment for segment in log.segments[1:] if segment.base_offset >= offset]
    with log.gate.truncation():
        log.forget_segments(removed)
        _remove_after(log, offset, removed)
        position = log.active.locate(offset, wait=True)
        if position is not None:
            log.active.truncate_to_position(position, offset)
            log.active.file.sync()
        log.log_start_offset = min(log.log_start_offset, offset)
        _finish_truncation(log, offset, written_end)


def end_after_truncation(log: LogState, offset: int) -> int:
    """Return the end of the last batch that a truncation to `offset` would keep.

    This may be less than `offset`, because compaction leaves gaps.
    """
    segment = segments_from(log.segments, offset - 1)[0]
    end_offset = segment.base_offset
    for header in segment.headers_near(offset - 1, wait=True):
        if header.last_offset >= offset:
            break
        end_offset = header.next_offset
    return end_offset


def truncate_fully(log: LogState, offset: int, now_ms: int) -> None:
    """Discard all records. The next record gets `offset`."""
    with log.gate.truncation():
        _remove_after(log, -1, log.segments)
        log.segments = [log.new_segment(offset, now_ms)]
        log.fs.sync_directory(log.directory)  # the log must not begin at a later segment
        log.log_start_offset = offset
        _finish_truncation(log, offset, offset)
        log.epochs.clear()
        log.producers.clear()


def _remove_after(log: LogState, offset: int, segments: Sequence[Segment]) -> None:
    """Remove segments and the snapshots after `offset`, and sync the directory.

    The removal must be durable before anything is written in their place, or a power failure
    could leave a mixture of two histories. Snapshots are removed first: a segment that still
    has its snapshot would look valid even if the segments before it are missing.
    """
    for snapshots in (log.pending_snapshots, log.flush_job.snapshots if log.flush_job else {}):
        for stale in [o for o in snapshots if o > offset]:
            del snapshots[stale]
    remove_snapshots_after(log.fs, log.directory, offset)
    log.fs.sync_directory(log.directory)
    for segment in reversed(segments):
        segment.remove()
    if segments:
        log.fs.sync_directory(log.directory)


def _finish_truncation(log: LogState, offset: int, written_end: int) -> None:
    log.reader.forget()
    log.clean_end = None
    log.log_end_offset = offset
    log.gap = offset, written_end
    log.recovery_point = min(log.recovery_point, written_end)
    log.epochs.truncate_from_end(offset)
    log.directory_changed = True
    restore_producers(
        log.fs,
        log.directory,
        log.segments,
        offset,
        log.producers,
        unwritten=log.unwritten_snapshots(),
    )
