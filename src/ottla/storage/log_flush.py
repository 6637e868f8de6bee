"""Making a log durable: the beginning and the outcome of flush jobs, and a clean shutdown.

Invariants
- The recovery point advances only to an offset whose records, leader epochs and producer snapshots
  a job has synced, never past the log end offset, and never for a job that a truncation overtook.
- What a failed job was to write is pending again, since an unknown part of it reached the disk.
- The snapshot of a segment is written only after everything before the segment has been synced:
  recovery trusts the records before it.

The jobs themselves, which run in other threads, are in flush.py.
"""

from __future__ import annotations

from contextlib import suppress

from ottla.base.ports import write_unsynced
from ottla.storage.flush import FlushJob
from ottla.storage.log_reader import segments_from
from ottla.storage.log_state import LogState
from ottla.storage.producer_snapshots import snapshot_path
from ottla.storage.segment import UNINDEXED_BYTES, Segment


def begin_flush(log: LogState, *, with_indexes: bool = False) -> FlushJob:
    """Return a job that makes everything appended so far durable.

    Run it in any thread, then call `flushed` or `flush_failed`.

    Args:
        with_indexes: Whether to also save the indexes of the active segment, so that recovery
            can start near the recovery point instead of at the beginning of the segment.
    """
    active = log.active
    with_indexes = with_indexes or active.indexes_are_rewritten
    if with_indexes:
        active.flush_indexes()
    else:
        active.txn_index.flush()
    job = FlushJob(
        log.written_end,
        log.fs,
        log.directory,
        _unsynced_segments(log)[:-1],
        active,
        log.pending_snapshots,
        log.epochs,
        log.directory_changed or active.txn_index.is_unsynced,
        with_indexes,
        log.unflushed_messages,
        log.gate,
        log.gate.truncations,
    )
    log.flush_job = job
    log.pending_snapshots = {}
    log.directory_changed = False
    log.unflushed_messages = 0
    return job


def flushed(log: LogState, job: FlushJob, now_ms: int) -> None:
    """Advance the recovery point after `job` has run.

    A job that was overtaken by a truncation has made nothing durable.
    """
    if job.is_outdated:
        job.offset = min(job.offset, log.recovery_point)
        flush_failed(log, job)
        return
    log.flush_job = None
    log.recovery_point = max(log.recovery_point, min(job.offset, log.log_end_offset))
    log.last_flush_ms = now_ms


def flush_failed(log: LogState, job: FlushJob) -> None:
    """Schedule the work of `job` again: it is unknown how much of it reached the disk."""
    log.flush_job = None
    log.pending_snapshots = {**job.snapshots, **log.pending_snapshots}
    log.directory_changed = log.directory_changed or job.sync_directory
    log.unflushed_messages += job.messages


def write_out(log: LogState) -> None:
    """Write everything that is only in memory, and close the files.

    The data survives a power failure only once the files have been synced. `close` does so for
    one log. To close many logs, sync them all at once and then call `synced` on each.
    """
    end_offset = log.written_end
    if not _is_written_out(log):
        if log.producers.producers or log.size > UNINDEXED_BYTES:
            log.pending_snapshots[end_offset] = log.producers.encode()
        log.active.seal()
        for segment in _unsynced_segments(log):
            segment.flush_indexes()
        # Only this one: the snapshot of a segment asserts that everything before is synced.
        snapshot = log.pending_snapshots.get(end_offset)
        if snapshot is not None:
            path = snapshot_path(log.directory, end_offset)
            write_unsynced(log.fs, path, snapshot)
        log.epochs.flush(sync=False)
    for segment in log.segments:
        segment.close()


def synced(log: LogState) -> None:
    """Record that everything written by `write_out` has been synced.

    Writes the snapshots of segments, which assert exactly that. They are worth another sync,
    because once records are deleted, only the snapshots still hold the state of their
    producers.
    """
    log.recovery_point = log.written_end
    for offset, snapshot in log.pending_snapshots.items():
        if offset != log.recovery_point:
            with suppress(OSError):
                write_unsynced(log.fs, snapshot_path(log.directory, offset), snapshot)
    log.pending_snapshots = {}


def _is_written_out(log: LogState) -> bool:
    return (
        log.log_end_offset == log.clean_end
        and not log.directory_changed
        and not log.pending_snapshots
        and not log.epochs.dirty
    )


def _unsynced_segments(log: LogState) -> list[Segment]:
    """Return the segments after the recovery point, and one that may end exactly there."""
    return segments_from(log.segments, max(log.recovery_point - 1, 0))
