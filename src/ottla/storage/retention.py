"""Retention: which old segments of a log may be deleted, and their removal.

The oldest segment is deleted if one of these applies, checked in this order:

    log start offset   it lies entirely before it (after DeleteRecords)    always
    retention.bytes    the log is still at least that large without it     cleanup.policy has delete
    retention.ms       its newest record is older than that                cleanup.policy has delete

Nothing at or after the high watermark is deleted, so the log start offset never exceeds what
consumers may read. Only whole segments are deleted, beginning with the oldest one, without gaps.
The active segment is deleted as well if it has expired and is not empty: the log rolls to a new one
first, and removes the old one in a later run, once the snapshot of its producers has been flushed.

If the records of a segment have no timestamps, its age is that of its file.

Invariants of a removal
- The log start offset only grows, and never lies in a segment that was removed.
- The snapshot of the first segment that stays is not waiting for a flush: the state of the
  producers of the removed records can be restored after a power failure.
- Removed segments keep their files, marked `.deleted`, until no reader can need them any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ottla.base.config.topic import TopicConfig
from ottla.storage.log_state import LogState
from ottla.storage.producer_snapshots import snapshot_path
from ottla.storage.segment import DELETED_SUFFIX, Segment


class SegmentFacts(Protocol):
    """The properties of a segment on which retention depends.

    `largest_timestamp` may have to be read from disk, so it is evaluated last, and only where
    needed.
    """

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def largest_timestamp(self) -> int: ...


class LogBounds(NamedTuple):
    log_start_offset: int
    log_end_offset: int
    high_watermark: int


class ExpiredSegments(NamedTuple):
    """The number of oldest segments that may be deleted, and the reason."""

    head: int
    reason: str


class RemovedSegments(NamedTuple):
    """Segments that were removed from a log, with files marked `.deleted` for later removal."""

    segments: list[Segment]
    reason: str


def expired_segments(
    segments: Sequence[SegmentFacts], bounds: LogBounds, config: TopicConfig, now_ms: int
) -> ExpiredSegments:
    """Return how many of the segments, ordered from the oldest, have expired."""
    rules: list[tuple[str, Callable[[Sequence[SegmentFacts]], int]]] = [
        ("log start offset", lambda rest: _before_start(rest, bounds)),
    ]
    if config.delete:
        rules += [
            ("retention.bytes", lambda rest: _beyond_size(rest, bounds, config.retention_bytes)),
            ("retention.ms", lambda rest: _too_old(rest, bounds, config.retention_ms, now_ms)),
        ]
    total, reasons = 0, []
    for name, count_expired in rules:
        count = count_expired(segments[total:])
        if count:
            total += count
            reasons.append(name)
    return ExpiredSegments(total, ", ".join(reasons))


def apply_retention(log: LogState, high_watermark: int, now_ms: int) -> RemovedSegments:
    """Remove expired segments from `log`. May read timestamps from disk.

    Args:
        log: The log to clean up.
        high_watermark: High watermark of the partition.
        now_ms: Current time.

    Returns:
        The removed segments and the reason. The caller deletes their files.
    """
    bounds = LogBounds(log.log_start_offset, log.log_end_offset, high_watermark)
    facts = [_LogSegment(segment, segment is log.active) for segment in log.segments]
    count, reason = expired_segments(facts, bounds, log.config, now_ms)
    removed = detach_head(log, count, now_ms) if count else []
    return RemovedSegments(removed, reason if removed else "")


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


def largest_timestamp(segment: Segment) -> int:
    """Return the largest timestamp in a segment, or the modification time of its file if none."""
    timestamp = segment.max_timestamp
    return timestamp if timestamp >= 0 else segment.fs.modified_ms(segment.file.path)


class _LogSegment:
    """A segment as `expired_segments` sees it.

    The indexes that are loaded to find the timestamp do not stay in memory.
    """

    __slots__ = ("_is_active", "_segment", "base_offset", "size")

    def __init__(self, segment: Segment, is_active: bool) -> None:
        self._segment = segment
        self._is_active = is_active
        self.base_offset = segment.base_offset
        self.size = segment.size

    @property
    def largest_timestamp(self) -> int:
        timestamp = largest_timestamp(self._segment)
        if not self._is_active:
            self._segment.unload()
        return timestamp


def _before_start(segments: Sequence[SegmentFacts], bounds: LogBounds) -> int:
    behind = [segment.base_offset for segment in segments[1:]]

    def is_expired(number: int) -> bool:
        return number < len(behind) and behind[number] <= bounds.log_start_offset

    return _count_head(segments, bounds, is_expired)


def _beyond_size(segments: Sequence[SegmentFacts], bounds: LogBounds, limit: int) -> int:
    excess = sum(segment.size for segment in segments) - limit
    if limit < 0 or excess < 0:
        return 0

    def is_expired(number: int) -> bool:
        nonlocal excess
        excess -= segments[number].size
        return excess >= 0

    return _count_head(segments, bounds, is_expired)


def _too_old(segments: Sequence[SegmentFacts], bounds: LogBounds, limit: int, now_ms: int) -> int:
    if limit < 0:
        return 0
    return _count_head(
        segments, bounds, lambda number: now_ms - segments[number].largest_timestamp > limit
    )


def _count_head(
    segments: Sequence[SegmentFacts], bounds: LogBounds, is_expired: Callable[[int], bool]
) -> int:
    """Return the number of segments from the front that may be deleted, checking one at a time."""
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        end = bounds.log_end_offset if is_last else segments[number + 1].base_offset
        is_empty_tail = is_last and not segment.size
        if end > bounds.high_watermark or is_empty_tail or not is_expired(number):
            return number
    return len(segments)
