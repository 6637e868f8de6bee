"""Which old segments a log may let go of.

A segment goes when it is the oldest and one of these holds, looked at in this order:

    log start offset   it lies wholly before it (DeleteRecords moved it)   always
    retention.bytes    the log stays at least that large without it        cleanup.policy has delete
    retention.ms       its newest record is older than that                cleanup.policy has delete

Bounds: nothing at or behind the high watermark goes, so the log never starts behind what consumers
may read. Only whole segments go, from the oldest on without a gap. The active segment goes too
when it has expired and holds anything; the log rolls to a new one first, and lets go of it when the
snapshot of its producers has been flushed (`Log.detach_head`), at a later look.

A segment whose records have no timestamps is as old as its file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ottla.base.config.topic import TopicConfig
from ottla.storage.log import Log
from ottla.storage.segment import Segment


class SegmentFacts(Protocol):
    """What is asked about a segment. Its timestamp may have to be read from disk, so it is asked
    for last and not for every segment."""

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


class Expired(NamedTuple):
    """How many of the oldest segments may go, and why."""

    head: int
    reason: str


class Retired(NamedTuple):
    """Segments taken out of a log; their files are marked `.deleted`, to be removed later."""

    segments: list[Segment]
    reason: str


def expired_segments(
    segments: Sequence[SegmentFacts], bounds: LogBounds, config: TopicConfig, now_ms: int
) -> Expired:
    """Decide for a log of these segments, oldest first."""
    rules: list[tuple[str, Callable[[Sequence[SegmentFacts]], int]]] = [
        ("log start offset", lambda rest: _before_start(rest, bounds)),
    ]
    if config.delete:
        rules += [
            ("retention.bytes", lambda rest: _beyond_size(rest, bounds, config.retention_bytes)),
            ("retention.ms", lambda rest: _too_old(rest, bounds, config.retention_ms, now_ms)),
        ]
    total, reasons = 0, []
    for name, count_in in rules:
        count = count_in(segments[total:])
        if count:
            total += count
            reasons.append(name)
    return Expired(total, ", ".join(reasons))


def apply_retention(log: Log, high_watermark: int, now_ms: int) -> Retired:
    """Take what has expired out of `log`. May read timestamps from disk."""
    bounds = LogBounds(log.log_start_offset, log.log_end_offset, high_watermark)
    facts = [_LogSegment(segment, segment is log.active) for segment in log.segments]
    count, reason = expired_segments(facts, bounds, log.config, now_ms)
    removed = log.detach_head(count, now_ms) if count else []
    return Retired(removed, reason if removed else "")


def largest_timestamp(segment: Segment) -> int:
    """Of a segment's records; when its file was last written if they have none."""
    timestamp = segment.max_timestamp
    return timestamp if timestamp >= 0 else segment.fs.modified_ms(segment.file.path)


class _LogSegment:
    """A segment of a log as `expired_segments` sees it. Timestamps stay known, but the indexes
    that told them are not kept in memory."""

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
    """How many segments from the front may go, asking about one after the other."""
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        end = bounds.log_end_offset if is_last else segments[number + 1].base_offset
        is_empty_tail = is_last and not segment.size
        if end > bounds.high_watermark or is_empty_tail or not is_expired(number):
            return number
    return len(segments)
