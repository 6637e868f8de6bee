"""Planning of compaction: which part of a log may be compacted, and whether it is worthwhile.

    offset 0 … first dirty offset … end of the range … active segment … log end offset
             clean                dirty            not yet

The first dirty offset is where the last round ended (cleaner-offset-checkpoint). The range ends at
the beginning of the first segment that
  - contains the last stable offset: later transactions are undecided, or records not replicated;
  - is active, because it still changes;
  - has a record younger than `min.compaction.lag.ms`.
A log is due for compaction if its ratio of dirty to total bytes exceeds
`min.cleanable.dirty.ratio`, or if its dirty part has a record older than `max.compaction.lag.ms`.

Only synced data may be compacted. Otherwise a power failure could lose the latest record of a key
after compaction has removed the older one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from ottla.storage.compaction import CLEANED_SUFFIX
from ottla.storage.compaction_job import CleanedSegment, CompactionJob, SourceSegment
from ottla.storage.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from ottla.storage.log import Log
from ottla.storage.retention import largest_timestamp
from ottla.storage.segment import Segment

_base_offset = attrgetter("base_offset")


class CleanerLimits(NamedTuple):
    """Resources that one compaction may use."""

    memory_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class DirtyLog:
    """A log and its compactable part."""

    log: Log
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    is_checkpoint_wrong: bool
    """Whether the checkpoint lies outside the log, so that `first_dirty_offset` replaces it."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.is_overdue and self.dirty_bytes > 0:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """A job and the segments for which it was created."""

    log: Log
    job: CompactionJob
    sources: list[Segment]

    def sources_of(self, cleaned: CleanedSegment) -> list[Segment] | None:
        """Return the segments that `cleaned` replaces, or None if the log has changed since."""
        if self.log.directory != self.job.directory:
            return None
        wanted = set(cleaned.replaced)
        sources = [segment for segment in self.sources if segment.base_offset in wanted]
        present = {id(segment) for segment in self.log.segments}
        sizes = {source.base_offset: source.size for source in self.job.segments}
        is_unchanged = len(sources) == len(wanted) and all(
            id(segment) in present and segment.size == sizes[segment.base_offset]
            for segment in sources
        )
        return sources if is_unchanged else None


def assess(log: Log, checkpoint: int | None, last_stable_offset: int, now_ms: int) -> DirtyLog:
    """Determine the compactable part of `log`.

    May read the timestamps of segments from disk.

    Args:
        log: The log to assess.
        checkpoint: Offset at which the last round ended, or None if there was none.
        last_stable_offset: Last stable offset of the partition.
        now_ms: Current time.
    """
    start = log.log_start_offset
    is_wrong = checkpoint is not None and not start <= checkpoint <= log.log_end_offset
    first_dirty = start if checkpoint is None or is_wrong else checkpoint
    bound = min(last_stable_offset, log.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        bound = min(bound, _first_younger(log, first_dirty, now_ms - lag_ms))
    not_yet = _sealed_from(log, max(first_dirty, bound))
    end_offset = (not_yet[0] if not_yet else log.active).base_offset
    dirty = _between(log.segments, min(first_dirty, end_offset), end_offset)
    clean_bytes = sum(segment.size for segment in log.segments if segment.base_offset < first_dirty)
    return DirtyLog(
        log,
        first_dirty,
        end_offset,
        clean_bytes,
        sum(segment.size for segment in dirty),
        _is_overdue(log, first_dirty, now_ms),
        is_wrong,
    )


def plan(dirty: DirtyLog, limits: CleanerLimits, now_ms: int) -> CompactionPlan:
    """Create the job for a log that is due and has been flushed up to `end_offset`."""
    log, config = dirty.log, dirty.log.config
    assert log.recovery_point >= dirty.end_offset, "only what is on disk is compacted"
    sources = [segment for segment in log.segments if segment.base_offset < dirty.end_offset]
    job = CompactionJob(
        directory=log.directory,
        segments=[
            SourceSegment(
                segment.base_offset,
                segment.size,
                len(segment.offset_index) * OFFSET_ENTRY_SIZE,
                len(segment.time_index) * TIME_ENTRY_SIZE,
            )
            for segment in sources
        ],
        first_dirty_offset=dirty.first_dirty_offset,
        end_offset=dirty.end_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        aborted=log.aborted_transactions(sources[0].base_offset, dirty.end_offset),
        producers={
            entry.producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for entry in log.producers.producers.values()
        },
        memory_bytes=limits.memory_bytes,
        load_factor=limits.load_factor,
        io_buffer_bytes=limits.io_buffer_bytes,
        max_bytes_per_second=limits.max_bytes_per_second,
    )
    return CompactionPlan(log, job, sources)


def open_cleaned(log: Log, cleaned: CleanedSegment) -> Segment:
    """Open the segment that a compaction wrote, for `Log.replace_segments`.

    Raises:
        OSError: The file does not have the size that the compaction reported.
    """
    segment = Segment(log.fs, log.directory, cleaned.base_offset, suffix=CLEANED_SUFFIX)
    if segment.size != cleaned.size:
        raise OSError(f"{segment.file.path} has {segment.size} of {cleaned.size} bytes")
    return segment


def _first_younger(log: Log, first_dirty: int, than_ms: int) -> int:
    """Return the base offset of the first dirty segment with a record younger than `than_ms`."""
    for segment in _sealed_from(log, first_dirty):
        timestamp = largest_timestamp(segment)
        segment.unload()
        if timestamp > than_ms:
            return segment.base_offset
    return log.active.base_offset


def _is_overdue(log: Log, first_dirty: int, now_ms: int) -> bool:
    clean_until_ms = now_ms - log.config.max_compaction_lag_ms
    if clean_until_ms <= 0:
        return False
    timestamps = (segment.first_timestamp for segment in _sealed_from(log, first_dirty))
    return any(0 < timestamp < clean_until_ms for timestamp in timestamps)


def _sealed_from(log: Log, offset: int) -> list[Segment]:
    """Return the segment that contains `offset` and all later ones, except the active one."""
    return _between(log.segments, offset, log.active.base_offset)


def _between(segments: list[Segment], start: int, end: int) -> list[Segment]:
    """Return the segments from the one that contains `start` to the last one before `end`."""
    if start >= end:
        return []
    first = max(bisect_right(segments, start, key=_base_offset) - 1, 0)
    return [segment for segment in segments[first:] if segment.base_offset < end]
