"""Reading a log: by offset, and by timestamp.

Consumers read on from where they were, so the places where the last reads ended are remembered, and
their next read needs no search. Indexes of old segments are loaded when they are asked for; only a
few stay in memory.

A large read of bytes that were verified since they are in memory (verified.py) can be given as a
range of the file: nobody copies it, and nobody walks its batches; the index tells where it may end.

Readers may run in other threads, beside the one that changes the log. They work on the list of
segments that they found. When segments go, `forget` replaces the caches; a reader that finds them
replaced when it is done, or meets an error, looks again: what it read may not be there any more."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from operator import attrgetter
from threading import Lock
from typing import NamedTuple, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import Piece, ReadableBuffer
from ottla.base.types import TopicPartition
from ottla.storage.epoch_cache import LeaderEpochCache
from ottla.storage.flush import FlushGate
from ottla.storage.scan import Expected, verified_prefix
from ottla.storage.segment import Segment, WouldBlock
from ottla.storage.txn_index import AbortedTxn
from ottla.wire.records.batch import HEADER_SIZE, BatchHeader, read_header
from ottla.wire.records.errors import BatchError, CorruptBatch
from ottla.wire.records.record import iter_keys

MIN_IN_FILE_BYTES = 128 * 1024
"""Less is read and copied in the time that sending from the file takes to set up."""
MAX_CURSORS = 64
MAX_LOADED_INDEXES = 8
_base_offset = attrgetter("base_offset")


class LogSlice(NamedTuple):
    records: Piece
    next_offset: int


class FoundOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class ReadableLog(Protocol):
    """What a reader asks of its log."""

    partition: TopicPartition
    directory: str
    segments: list[Segment]
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    gate: FlushGate


def segments_from(segments: list[Segment], offset: int) -> list[Segment]:
    """The segment that `offset` lies in, and all behind it."""
    return segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0) :]


class LogReader:
    __slots__ = ("_cursors", "_loaded_indexes", "_log", "_reading")

    def __init__(self, log: ReadableLog) -> None:
        self._log = log
        self._cursors: dict[int, tuple[Segment, int]] = {}
        self._loaded_indexes: dict[int, Segment] = {}
        self._reading = Lock()
        """Guards the two caches above, the only things that readers in other threads change."""

    def forget(self) -> None:
        """Segments have gone or changed: what a reader still adds to the caches is lost with
        them."""
        self._cursors = {}
        self._loaded_indexes = {}

    # ---------------------------------------------------------------------------------- by offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        *,
        at_least_one: bool,
        wait: bool,
        in_file: bool = False,
    ) -> LogSlice:
        """Whole, verified batches from the one that holds `offset`, of those below `max_offset`.
        With `in_file` many of them may be given unread, as a range of their file.

        Raises KafkaError OFFSET_OUT_OF_RANGE outside the log and CORRUPT_MESSAGE where the next
        batch is damaged; WouldBlock if `wait` is false and the disk would have to be waited for."""
        if not wait and self._log.gate.is_truncating:
            raise WouldBlock
        cursors = self._cursors
        end_offset = self._log.log_end_offset
        if not self._log.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._log.partition} holds offsets {self._log.log_start_offset} to {end_offset}",
            )
        max_offset = min(max_offset, end_offset)
        if offset >= max_offset:
            return LogSlice(b"", offset)
        try:
            found = self._read_from(
                cursors, offset, max_bytes, max_offset, at_least_one, wait, in_file
            )
            if self._cursors is cursors:
                return found
        except BatchError as error:
            if not self._has_changed(cursors):
                raise self._corrupt(offset, str(error)) from None
        except OSError as error:
            if not self._has_changed(cursors):
                raise self._unreadable(error) from error
        # Segments were truncated, removed or compacted meanwhile: what was read may no longer be
        # part of the log, or not be what follows next.
        return self.read(
            offset, max_bytes, max_offset, at_least_one=at_least_one, wait=wait, in_file=in_file
        )

    def _read_from(
        self,
        cursors: dict[int, tuple[Segment, int]],
        offset: int,
        max_bytes: int,
        max_offset: int,
        at_least_one: bool,
        wait: bool,
        in_file: bool,
    ) -> LogSlice:
        found = cursors.get(offset) or self._find(offset, wait=wait)
        if found is not None and found[1] >= found[0].size:
            found = self._first_behind(found[0])
        if found is None:
            return LogSlice(b"", offset)
        segment, position = found
        limit = max(max_bytes, 0)
        if in_file:
            unread = self._range_from(cursors, segment, position, limit, max_offset, wait)
            if unread is not None:
                return unread
        data = _read_ahead(segment, position, limit, wait)
        if at_least_one:
            size = _first_batch_size(segment, position, data)
            if size > limit:
                limit, data = size, _read_ahead(segment, position, size, wait)
        end_offset, epoch_of = self._end_of(segment), self._log.epochs.epoch_for
        epoch = epoch_of(offset)
        is_one_epoch = epoch == epoch_of(end_offset - 1)
        expected = Expected(
            offset, max_offset, end_offset, epoch, None if is_one_epoch else epoch_of
        )
        prefix = verified_prefix(data, limit, expected)
        if prefix.is_corrupt and not prefix.size:
            raise CorruptBatch(f"{segment.file.path} is damaged near byte {position}")
        if prefix.size:
            end = position + prefix.size
            self._remember(cursors, prefix.next_offset, segment, end)
            if not wait:
                segment.verified.add(position, end, segment.size)
        return LogSlice(memoryview(data)[: prefix.size], prefix.next_offset)

    def _range_from(
        self,
        cursors: dict[int, tuple[Segment, int]],
        segment: Segment,
        position: int,
        limit: int,
        max_offset: int,
        wait: bool,
    ) -> LogSlice | None:
        """Batches from `position` on, unread; None if they are few, or have to be read."""
        if wait and segment is self._log.segments[-1]:
            return None  # it may grow meanwhile
        least = position + MIN_IN_FILE_BYTES
        if min(position + limit, segment.size) < least or not segment.verified.covers(
            position, least
        ):
            return None
        if not segment.offset_index.is_loaded:  # they came here from the segment before
            if not wait:
                raise WouldBlock
            segment.offset_index.load()
            self._use_index(segment)
        next_offset, end = self._end_of(segment), segment.size
        if position + limit < end or max_offset < next_offset:
            boundary = segment.boundary(position + limit, max_offset)
            if boundary is None or boundary.position < least:
                return None
            next_offset, end = boundary
        unread = segment.range_cached(position, end)
        if unread is None:
            return None
        self._remember(cursors, next_offset, segment, end)
        return LogSlice(unread, next_offset)

    def _end_of(self, segment: Segment) -> int:
        """The offset that no batch of `segment` reaches."""
        segments = self._log.segments
        if segment is segments[-1]:
            return self._log.log_end_offset
        slot = bisect_right(segments, segment.base_offset, key=_base_offset)
        return segments[slot].base_offset if slot < len(segments) else self._log.log_end_offset

    def _has_changed(self, cursors: dict[int, tuple[Segment, int]]) -> bool:
        """Whether segments have been truncated, removed or compacted since `cursors` was the cache.
        A truncation that is under way in another thread is waited for."""
        if self._log.gate.is_truncating:
            with self._log.gate.lock:
                return True
        return self._cursors is not cursors

    def _unreadable(self, error: OSError) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self._log.partition}: cannot read {self._log.directory}: {error.strerror}",
        )

    def _corrupt(self, offset: int, what: str) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{self._log.partition} cannot be read at offset {offset}: {what}",
        )

    def _first_behind(self, segment: Segment) -> tuple[Segment, int] | None:
        """Where the next batch is, if any, for a reader who has come to the end of a segment."""
        for later in segments_from(self._log.segments, segment.base_offset)[1:]:
            if later.size:
                return later, 0
        return None

    def _find(self, offset: int, *, wait: bool) -> tuple[Segment, int] | None:
        for segment in segments_from(self._log.segments, offset):
            position = segment.locate(offset, wait=wait, end_offset=self._end_of(segment))
            self._use_index(segment)
            if position is not None:
                return segment, position
        return None

    def _remember(
        self,
        cursors: dict[int, tuple[Segment, int]],
        offset: int,
        segment: Segment,
        position: int,
    ) -> None:
        """Consumers read on from where they were: their next read needs no search."""
        with self._reading:
            cursors[offset] = (segment, position)
            if len(cursors) > MAX_CURSORS:
                del cursors[next(iter(cursors))]

    def _use_index(self, segment: Segment) -> None:
        """Bound the memory that indexes of old segments take."""
        with self._reading:
            loaded = self._loaded_indexes
            loaded[segment.base_offset] = segment
            if len(loaded) > MAX_LOADED_INDEXES:
                oldest = loaded.pop(next(iter(loaded)))
                if oldest is not self._log.segments[-1]:
                    oldest.unload()

    def aborted_transactions(
        self, first_offset: int, end_offset: int, *, wait: bool = True
    ) -> list[AbortedTxn]:
        """Those that touch the range. WouldBlock if `wait` is false and the disk would have to be
        waited for."""
        found: list[AbortedTxn] = []
        for segment in segments_from(self._log.segments, first_offset):
            if not wait and not segment.txn_index.is_loaded:
                raise WouldBlock
            entries, is_complete = segment.txn_index.overlapping(first_offset, end_offset)
            found += entries
            if is_complete:
                break
        return found

    # ---------------------------------------------------------------------- look up by timestamp

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """The first record at or after `timestamp`. May wait for the disk."""
        return self._look_up(lambda: self._first_in_log(timestamp))

    def _first_in_log(self, timestamp: int) -> FoundOffset | None:
        for segment in list(self._log.segments):
            if segment.max_timestamp < timestamp:
                continue
            found = self._first_since(segment, timestamp)
            if found is not None:
                return found
        return None

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp of all. May wait for the disk."""
        return self._look_up(self._newest_in_log)

    def _newest_in_log(self) -> FoundOffset | None:
        segments = segments_from(self._log.segments, self._log.log_start_offset)
        timestamps = [self._newest_in(segment) for segment in segments]
        newest = max(timestamps)
        for segment, timestamp in zip(segments, timestamps, strict=True):
            found = self._first_since(segment, newest) if timestamp == newest >= 0 else None
            if found is not None:
                return found
        return None

    def _look_up(self, find: Callable[[], FoundOffset | None]) -> FoundOffset | None:
        while True:
            cursors = self._cursors
            try:
                return find()
            except BatchError:
                if not self._has_changed(cursors):
                    raise
            except OSError as error:
                if not self._has_changed(cursors):
                    raise self._unreadable(error) from error

    def _newest_in(self, segment: Segment) -> int:
        """The largest timestamp of the batches that are not deleted."""
        start_offset = self._log.log_start_offset
        if segment.base_offset >= start_offset:
            return segment.max_timestamp
        headers = segment.headers_near(start_offset, wait=True)
        return max((h.max_timestamp for h in headers if h.last_offset >= start_offset), default=-1)

    def _first_since(self, segment: Segment, timestamp: int) -> FoundOffset | None:
        for header in segment.batches_since(timestamp):
            found = self._first_record_since(segment, header, timestamp)
            if found is not None:
                return found
        return None

    def _first_record_since(
        self, segment: Segment, header: BatchHeader, timestamp: int
    ) -> FoundOffset | None:
        if header.last_offset < self._log.log_start_offset or not header.record_count:
            return None
        if header.timestamp_type:
            first = max(header.base_offset, self._log.log_start_offset)
            return FoundOffset(header.max_timestamp, first, header.leader_epoch)
        batch = segment.read_batch(header)
        for offset, record_timestamp, _, _ in iter_keys(batch, header._replace(position=0)):
            if record_timestamp >= timestamp and offset >= self._log.log_start_offset:
                return FoundOffset(record_timestamp, offset, header.leader_epoch)
        return None


def _read_ahead(segment: Segment, position: int, length: int, wait: bool) -> ReadableBuffer:
    """`length` bytes and a batch header behind them, or up to the end of the segment."""
    wanted = min(length + HEADER_SIZE, segment.size - position)
    data = segment.read_bytes(position, wanted, wait=wait)
    if len(data) < wanted:
        raise CorruptBatch(f"{segment.file.path} ends at byte {position + len(data)}")
    return data


def _first_batch_size(segment: Segment, position: int, data: ReadableBuffer) -> int:
    size = read_header(data).size
    if not HEADER_SIZE <= size <= segment.size - position:
        raise CorruptBatch(f"{segment.file.path} has an impossible length at byte {position}")
    return size
