"""One file of a log and its indexes.

    <base offset, 20 digits>.log        batches back to back
                            .index      offset -> position  (index.py)
                            .timeindex  timestamp -> offset (index.py)
                            .txnindex   aborted transactions, if any (txn_index.py)

Only the log's last segment is appended to. A crash can leave its tail torn and its indexes stale:
`recover` checks every batch, cuts the file after the last good one and rebuilds the indexes.
Suffixes after these names: `.deleted` is to be removed, `.cleaned` and `.swap` belong to
compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ottla.base.ports import FileSystem, ReadableBuffer
from ottla.storage.index import NO_TIMESTAMP, OffsetIndex, OffsetPosition, TimeIndex
from ottla.storage.txn_index import TransactionIndex
from ottla.wire.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    read_header,
    validate,
)
from ottla.wire.records.errors import BatchError, CorruptBatch

SCAN_CHUNK_BYTES = 16_384
RECOVERY_CHUNK_BYTES = 4_194_304
MAX_SEGMENT_BYTES = 2**31 - 1
MAX_RELATIVE_OFFSET = 2**31 - 1


class WouldBlock(Exception):
    """The bytes are not in memory; ask again from a thread that may wait for the disk."""


class Recovered(NamedTuple):
    next_offset: int
    """After the last batch that was made out."""
    cut_bytes: int
    damaged: int
    """Places that cannot be read and were kept, because they had been safe once."""
    is_whole: bool
    """False if the end of the segment cannot be made out; it must not be appended to."""


def segment_path(directory: str, base_offset: int, extension: str) -> str:
    return f"{directory}/{base_offset:020d}.{extension}"


class Segment:
    __slots__ = (
        "_first_timestamp",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "directory",
        "file",
        "fs",
        "is_removed",
        "offset_index",
        "size",
        "suffix",
        "time_index",
        "torn",
        "txn_index",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        *,
        new: bool = False,
        created_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self.fs = fs
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.file = fs.open(self._path("log"), create=new)
        if new:
            self.file.truncate(0)
        self.offset_index = OffsetIndex(fs, self._path("index"), base_offset, new=new)
        self.time_index = TimeIndex(fs, self._path("timeindex"), base_offset, new=new)
        self.txn_index = TransactionIndex(fs, self._path("txnindex"))
        self.size = 0 if new else fs.size(self.file.path)
        self.created_ms = created_ms
        self.bytes_since_index_entry = 0
        self.is_removed = False
        self.torn = False
        """A write failed half-way and could not be undone yet."""
        self._first_timestamp: int | None = None
        self._max_timestamp: int | None = NO_TIMESTAMP if new else None
        self._offset_of_max_timestamp = base_offset

    def _path(self, extension: str) -> str:
        return segment_path(self.directory, self.base_offset, extension) + self.suffix

    # ---------------------------------------------------------------------------------- append

    def append(
        self,
        buffers: Sequence[ReadableBuffer],
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Write one batch at the end. On OSError nothing counts as written."""
        position = self.size
        if self.torn:
            self._undo_torn_write()
        try:
            self.file.write(position, buffers)
        except OSError:
            self.torn = True
            self._undo_torn_write()
            raise
        self.size = position + size
        known = self._max_timestamp
        if max_timestamp > (self.max_timestamp if known is None else known):
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if not position:
            self._first_timestamp = max_timestamp
        if self.bytes_since_index_entry > index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self._offset_of_max_timestamp)
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += size

    def _undo_torn_write(self) -> None:
        """A half-written batch must go before another is written over its front: what would be
        left of it could be mistaken for a batch."""
        self.file.truncate(self.size)
        self.torn = False

    # ------------------------------------------------------------------------------------ read

    def read_bytes(self, position: int, length: int, *, wait: bool) -> ReadableBuffer:
        length = min(length, self.size - position)
        if length <= 0:
            return b""
        if wait:
            return self.file.read(position, length)
        data = self.file.read_cached(position, length)
        if data is None:
            raise WouldBlock
        return data

    def iter_headers(self, position: int, *, wait: bool) -> Iterator[BatchHeader]:
        """Headers of the batches from `position` on; `header.position` is in the file."""
        chunk, start = self.read_bytes(position, SCAN_CHUNK_BYTES, wait=wait), position
        while self.size - position >= HEADER_SIZE:
            if position + HEADER_SIZE > start + len(chunk):
                chunk, start = self.read_bytes(position, SCAN_CHUNK_BYTES, wait=wait), position
                if len(chunk) < HEADER_SIZE:
                    return
            header = read_header(chunk, position - start)
            if header.size < HEADER_SIZE or header.magic != MAGIC:
                raise CorruptBatch(f"{self.file.path} holds no batch at byte {position}")
            yield header._replace(position=position)
            position += header.size

    def locate(self, offset: int, *, wait: bool) -> int | None:
        """Where the first batch begins whose last offset is at or behind `offset`."""
        for header in self.iter_headers(self.offset_index.lookup(offset).position, wait=wait):
            if header.last_offset >= offset:
                return header.position
        return None

    def read_batch(self, header: BatchHeader) -> ReadableBuffer:
        """The whole batch that `header` was read from, checked."""
        batch = self.read_bytes(header.position, header.size, wait=True)
        validate(batch, 0, header)
        return batch

    def next_offset(self) -> int:
        """The offset after the last batch."""
        next_offset = self.base_offset
        for header in self.iter_headers(self.offset_index.last().position, wait=True):
            next_offset = header.next_offset
        return next_offset

    # -------------------------------------------------------------------------------- timestamps

    @property
    def max_timestamp(self) -> int:
        if self._max_timestamp is None:
            self._load_max_timestamp()
        assert self._max_timestamp is not None
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        return self._offset_of_max_timestamp if self.max_timestamp >= 0 else self.base_offset

    def _load_max_timestamp(self) -> None:
        timestamp, offset = self.time_index.last()
        for header in self.iter_headers(self.offset_index.lookup(offset).position, wait=True):
            if header.max_timestamp > timestamp:
                timestamp, offset = header.max_timestamp, header.last_offset
        self._max_timestamp, self._offset_of_max_timestamp = timestamp, offset

    @property
    def first_timestamp(self) -> int:
        """Of the first batch; -1 in an empty segment."""
        if self._first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            first = next(self.iter_headers(0, wait=True), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    def batches_since(self, timestamp: int) -> Iterator[BatchHeader]:
        """Headers of the batches that hold a record at or after `timestamp`, in offset order."""
        known = self.time_index.lookup(timestamp - 1)
        for header in self.iter_headers(self.offset_index.lookup(known.offset).position, wait=True):
            if header.max_timestamp >= timestamp:
                yield header

    # -------------------------------------------------------------------------------- life cycle

    def seal(self) -> None:
        """No more appends: the time index gets its last word."""
        if self.size and self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self._offset_of_max_timestamp)

    def flush_indexes(self) -> None:
        self.offset_index.flush()
        self.time_index.flush()

    @property
    def is_leaving(self) -> bool:
        """Whether it is taken out of its log, so that nobody needs it on disk."""
        return self.is_removed or self.suffix != ""

    def sync_log(self) -> None:
        """May run beside the thread that renames or removes files."""
        try:
            self.file.sync()
        except FileNotFoundError:
            if not self.is_leaving:
                raise

    def sync_indexes(self) -> None:
        for path in (self.offset_index.path, self.time_index.path, self.txn_index.path):
            if self.fs.exists(path):
                file = self.fs.open(path)
                file.sync()
                file.close()

    def close(self) -> None:
        self.file.close()

    def indexes_are_sane(self) -> bool:
        return (
            self.offset_index.is_sane(self.size)
            and self.time_index.is_sane()
            and self.txn_index.is_sane(self.base_offset)
        )

    def truncate_to_position(self, position: int, offset: int) -> None:
        self.file.truncate(position)
        self.size = position
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._max_timestamp = None if position else NO_TIMESTAMP
        self._first_timestamp = None
        self.bytes_since_index_entry = 0

    def commit_cleaned(self) -> None:
        """A compacted segment is whole: from now on it replaces those it was made from, even if
        the broker stops here. Waits for the disk."""
        self.change_suffix(".swap")
        self.fs.sync_directory(self.directory)

    def change_suffix(self, suffix: str) -> None:
        """Rename all files of the segment, the log last: it is the one that counts. Others may be
        reading it: they must not have to open it by a name that is just changing."""
        self.file.size()
        self.suffix = suffix
        self.offset_index.rename(self._path("index"))
        self.time_index.rename(self._path("timeindex"))
        self.txn_index.rename(self._path("txnindex"))
        self.fs.rename(self.file.path, self._path("log"))
        self.file.path = self._path("log")

    def remove(self) -> None:
        """Unlink the files. A file of this segment that a flush is just writing may be left over
        under its last name; the next start removes it."""
        self.is_removed = True
        self.file.close()
        self.fs.remove(self.file.path)
        self.offset_index.remove()
        self.time_index.remove()
        self.txn_index.remove()

    def unload(self) -> None:
        self.offset_index.unload()
        self.time_index.unload()

    # ---------------------------------------------------------------------------------- recovery

    def recover(
        self,
        safe_offset: int,
        index_interval_bytes: int,
        on_batch: Callable[[BatchHeader, memoryview], None],
    ) -> Recovered:
        """Check every batch from the last indexed one before `safe_offset` on, rebuild the indexes
        behind it, and cut the file after the last good batch. `on_batch` is told each good batch.

        What lies below `safe_offset` had reached the disk once: damage there is not an unfinished
        write, and cutting would throw away the good batches behind it. It stays, to be refused
        when it is read."""
        position, expected = self.reset_indexes(safe_offset)
        good, damaged = position, 0
        for header, batch in self._batches(position):
            if header.base_offset < expected:
                break
            if batch is not None:
                on_batch(header, batch)
                self._index_recovered(header, index_interval_bytes)
            elif header.last_offset < safe_offset:
                damaged += 1
            else:
                break
            expected = header.next_offset
            good = header.end
        if good < self.size and expected < safe_offset:
            return Recovered(expected, 0, damaged + 1, is_whole=False)
        cut = self.size - good
        if cut:
            self.file.truncate(good)
            self.size = good
        return Recovered(expected, cut, damaged, is_whole=True)

    def _index_recovered(self, header: BatchHeader, index_interval_bytes: int) -> None:
        if header.max_timestamp > self.max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._offset_of_max_timestamp = header.last_offset
        if self.bytes_since_index_entry > index_interval_bytes:
            self.offset_index.append(header.last_offset, header.position)
            self.time_index.append(self.max_timestamp, self._offset_of_max_timestamp)
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += header.size

    def recovery_start(self, from_offset: int) -> OffsetPosition:
        """Where a recovery for `from_offset` begins: (an offset at or before the first batch it
        checks, that batch's position)."""
        if from_offset <= self.base_offset or not self.indexes_are_sane():
            return OffsetPosition(self.base_offset, 0)
        position = self.offset_index.lookup(from_offset).position
        first = next(self.iter_headers(position, wait=True), None)
        if first is None or not self.base_offset <= first.base_offset <= from_offset:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(first.base_offset, position)

    def reset_indexes(self, from_offset: int) -> tuple[int, int]:
        """Drop what the indexes say from `from_offset` on; (position, offset) to go on from."""
        offset, position = self.recovery_start(from_offset)
        if position:
            self.offset_index.truncate_to(offset)
            self.time_index.truncate_to(offset)
            self.txn_index.truncate_to(offset)
            self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last()
        else:
            fs = self.fs
            self.offset_index = OffsetIndex(fs, self._path("index"), self.base_offset, new=True)
            self.time_index = TimeIndex(fs, self._path("timeindex"), self.base_offset, new=True)
            self.txn_index.reset()
            self._max_timestamp = NO_TIMESTAMP
            self._offset_of_max_timestamp = self.base_offset
        self.bytes_since_index_entry = 0
        return position, offset

    def _batches(self, position: int) -> Iterator[tuple[BatchHeader, memoryview | None]]:
        """All that can be told apart as batches from `position` on; None for one that is damaged
        but has a believable length."""
        chunk, start = memoryview(b""), position
        while self.size - position >= HEADER_SIZE:
            if start + len(chunk) - position < HEADER_SIZE:
                chunk, start = self._chunk(position, RECOVERY_CHUNK_BYTES), position
            header = read_header(chunk, position - start)
            if header.magic != MAGIC or not HEADER_SIZE <= header.size <= self.size - position:
                return
            if header.end > len(chunk):
                chunk, start = (
                    self._chunk(position, max(header.size, RECOVERY_CHUNK_BYTES)),
                    position,
                )
                header = header._replace(position=0)
            batch: memoryview | None = chunk[header.position : header.end]
            try:
                validate(chunk, header.position, header)
            except BatchError:
                batch = None
            yield header._replace(position=position), batch
            position += header.size

    def _chunk(self, position: int, length: int) -> memoryview:
        return memoryview(self.read_bytes(position, length, wait=True))
