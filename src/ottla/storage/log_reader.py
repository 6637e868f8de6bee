"""Log reads by offset and lookups by timestamp.

Consumers continue where their last read ended, so the reader remembers the file positions of those
ends and the next read needs no search. Indexes of old segments are loaded on demand; only a few
stay in memory.

A large read of bytes that have been verified while in the page cache (verified.py) can be returned
as a range of the file. Such bytes are neither copied nor scanned; the offset index determines where
the range may end.

Reads may run in other threads, concurrently with the thread that changes the log. They work on the
list of segments that they found when they started. When segments are removed, `forget` replaces the
caches. A reader that fails, or finds the caches replaced when it is done, starts over, because the
data it read may no longer be part of the log.
"""

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
"""Minimum size of a file range. Smaller reads are copied in less time than sendfile setup takes."""
MAX_CURSORS = 64
MAX_LOADED_INDEXES = 8
_base_offset = attrgetter("base_offset")


class LogSlice(NamedTuple):
    """The result of a read: complete batches, and the offset to read next."""

    records: Piece
    next_offset: int


class FoundOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class ReadableLog(Protocol):
    """The attributes of a log that its reader uses."""

    partition: TopicPartition
    directory: str
    segments: list[Segment]
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    gate: FlushGate


def segments_from(segments: list[Segment], offset: int) -> list[Segment]:
    """Return the segment that contains `offset` and all later ones."""
    return segments[max(bisect_right(segments, offset, key=_base_offset) - 1, 0) :]


class LogReader:
    """Reader of one log, with caches of read positions and of loaded indexes."""

    __slots__ = ("_cursors", "_loaded_indexes", "_log", "_reading")

    def __init__(self, log: ReadableLog) -> None:
        self._log = log
        self._cursors: dict[int, tuple[Segment, int]] = {}
        self._loaded_indexes: dict[int, Segment] = {}
        self._reading = Lock()
        """Guards both caches, which are the only state that readers in other threads change."""

    def forget(self) -> None:
        """Replace the caches after segments were removed or changed.

        Entries that a concurrent reader still adds to the old caches are lost with them.
        """
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
        """Return verified batches; `Log.read` describes the arguments and the errors."""
        if not wait and self._log.gate.is_truncating:
            raise WouldBlock
        cursors = self._cursors
        end_offset = self._log.log_end_offset
        if not self._log.log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._log.partition} contains offsets {self._log.log_start_offset} to "
                f"{end_offset}",
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
        # Segments were truncated, removed or compacted during the read. The data may no longer be
        # part of the log, or may not be what follows `offset` now.
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
            found = self._first_offset_after(found[0])
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
        """Return batches from `position` on as a range of the file, or None if not possible.

        That is the case if they are too few, or have not been verified since they are in memory.
        """
        if wait and segment is self._log.segments[-1]:
            return None  # the active segment may grow at the same time
        least = position + MIN_IN_FILE_BYTES
        if min(position + limit, segment.size) < least or not segment.verified.covers(
            position, least
        ):
            return None
        if not segment.offset_index.is_loaded:  # the reader came from the segment before
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
        """Return the first offset after the last possible batch of `segment`."""
        segments = self._log.segments
        if segment is segments[-1]:
            return self._log.log_end_offset
        slot = bisect_right(segments, segment.base_offset, key=_base_offset)
        return segments[slot].base_offset if slot < len(segments) else self._log.log_end_offset

    def _has_changed(self, cursors: dict[int, tuple[Segment, int]]) -> bool:
        """Return whether segments were truncated, removed or compacted since `cursors` was current.

        Waits for a truncation that is in progress in another thread.
        """
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

    def _first_offset_after(self, segment: Segment) -> tuple[Segment, int] | None:
        """Return the position of the first batch after `segment`, or None if there is none."""
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
        """Cache the position of `offset` for the next read of the same consumer."""
        with self._reading:
            cursors[offset] = (segment, position)
            if len(cursors) > MAX_CURSORS:
                del cursors[next(iter(cursors))]

    def _use_index(self, segment: Segment) -> None:
        """Bound the memory used by the indexes of old segments."""
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
        """Return the aborted transactions that overlap [first_offset, end_offset).

        Raises:
            WouldBlock: `wait` is false and a transaction index would have to be read from disk.
        """
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
        """Return the first record at or after `timestamp`. May block on the disk."""
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
        """Return the first record that has the largest timestamp in the log. May block on the disk.

        Records before the log start offset are ignored.
        """
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
        """Return the largest timestamp of the batches at or after the log start offset."""
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
    """Read `length` bytes plus one batch header, or up to the end of the segment."""
    wanted = min(length + HEADER_SIZE, segment.size - position)
    data = segment.read_bytes(position, wanted, wait=wait)
    if len(data) < wanted:
        raise CorruptBatch(f"{segment.file.path} ends at byte {position + len(data)}")
    return data


def _first_batch_size(segment: Segment, position: int, data: ReadableBuffer) -> int:
    size = read_header(data).size
    if not HEADER_SIZE <= size <= segment.size - position:
        raise CorruptBatch(f"{segment.file.path} has an invalid length at byte {position}")
    return size
