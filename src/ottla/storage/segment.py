"""One file of a log and its indexes.

    <base offset, 20 digits>.log        batches back to back
                            .index      offset -> position  (index.py)
                            .timeindex  timestamp -> offset (index.py)
                            .txnindex   aborted transactions, if any (txn_index.py)

Only the log's last segment is appended to. A crash can leave its tail torn and its indexes stale:
`segment_recovery.py` checks every batch, cuts the file after the last good one and rebuilds them.
Suffixes after these names: `.deleted` is to be removed, `.cleaned` and `.swap` belong to
compaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock

from ottla.base.ports import FileRange, FileSystem, ReadableBuffer
from ottla.storage.index import (
    NO_TIMESTAMP,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from ottla.storage.txn_index import TransactionIndex
from ottla.storage.verified import VerifiedBytes
from ottla.wire.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    read_header,
    validate,
)
from ottla.wire.records.errors import BatchError, CorruptBatch

SCAN_CHUNK_BYTES = 16_384
UNINDEXED_BYTES = 8_192
MAX_SEGMENT_BYTES = 2**31 - 1
MAX_RELATIVE_OFFSET = 2**31 - 1
LAST_OFFSET = 2**63 - 1

_renaming = Lock()
"""Held while a log file has a new name that its `File` does not know yet."""


class WouldBlock(Exception):
    """The bytes are not in memory; ask again from a thread that may wait for the disk."""


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
        "verified",
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
        if new and self.file.size():
            # Not one that is empty: ext4 writes a file that was cut to nothing to the disk when it
            # is closed, all of it, and whoever closes it waits.
            self.file.truncate(0)
        self.offset_index = OffsetIndex(fs, self._path("index"), base_offset, new=new)
        self.time_index = TimeIndex(fs, self._path("timeindex"), base_offset, new=new)
        self.txn_index = TransactionIndex(fs, self._path("txnindex"))
        if new:
            self.txn_index.reset()
        self.size = 0 if new else fs.size(self.file.path)
        self.verified = VerifiedBytes(self.size)
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
        if self._max_timestamp is None or self.bytes_since_index_entry > index_interval_bytes:
            self._load_for_append()
        try:
            self.file.write(position, buffers)
        except OSError:
            self.torn = True
            self._undo_torn_write()
            raise
        self.size = position + size
        self.count_in(position, size, last_offset, max_timestamp, index_interval_bytes)

    def _load_for_append(self) -> None:
        """What may wait for the disk, and fail, comes before the write."""
        self._load_max_timestamp()
        self.offset_index.load()
        self.time_index.load()

    def count_in(
        self,
        position: int,
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Let indexes and timestamps know of the batch at `position`, the last so far."""
        assert self._max_timestamp is not None
        if max_timestamp > self._max_timestamp:
            self._offset_of_max_timestamp = last_offset
            self._max_timestamp = max_timestamp
        if not position:
            self._first_timestamp = max_timestamp
        if self.bytes_since_index_entry > index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self._max_timestamp, self._offset_of_max_timestamp)
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
            return self._read(position, length)
        data = self.file.read_cached(position, length)
        if data is None:
            raise WouldBlock
        return data

    def _read(self, position: int, length: int) -> bytes:
        # Perhaps from memory after all. Said before, for whoever looks meanwhile; and after, for if
        # somebody has taken note of it meanwhile.
        self.verified.came_from_disk = True
        try:
            return self.file.read(position, length)
        except FileNotFoundError:
            with _renaming:  # by another thread, perhaps; its new name is known when that is done
                return self.file.read(position, length)
        finally:
            self.verified.came_from_disk = True

    def boundary(self, limit: int, max_offset: int) -> OffsetPosition | None:
        """Where a batch begins, at or before byte `limit`, and with which offset: the last one that
        is indexed, of those with nothing from `max_offset` on before them. None if the indexes are
        not in memory, or that batch is not."""
        if not self.offset_index.is_loaded:
            return None
        entry = self.offset_index.lookup_position(limit)
        if entry.offset >= max_offset:
            entry = self.offset_index.lookup(max_offset - 1)
        head = self.file.read_cached(entry.position, HEADER_SIZE)
        if not head or len(head) < HEADER_SIZE:
            return None
        header = read_header(head)
        is_it = header.magic == MAGIC and header.last_offset == entry.offset
        if not is_it or header.last_offset_delta < 0:
            return None
        return OffsetPosition(header.base_offset, entry.position)

    def range_cached(self, start: int, end: int) -> FileRange | None:
        """Bytes that need not be verified again, unread; None if they must be, or are not in
        memory."""
        if not self.verified.covers(start, end):
            return None
        return self.file.range_cached(start, end - start)

    def iter_headers(self, position: int, *, wait: bool) -> Iterator[BatchHeader]:
        """Headers of the batches from `position` on; `header.position` is in the file."""
        chunk, start = self.read_bytes(position, SCAN_CHUNK_BYTES, wait=wait), position
        while (left := self.size - position) > 0:
            if position + HEADER_SIZE > start + len(chunk):
                chunk, start = self.read_bytes(position, SCAN_CHUNK_BYTES, wait=wait), position
            header = read_header(chunk, position - start)
            is_whole = HEADER_SIZE <= header.size <= left
            if not is_whole or header.magic != MAGIC or header.last_offset_delta < 0:
                raise CorruptBatch(f"{self.file.path} holds no batch at byte {position}")
            yield header._replace(position=position)
            position += header.size

    def headers_near(self, offset: int, *, wait: bool) -> Iterator[BatchHeader]:
        """Headers from an indexed batch at or before `offset` on. An index entry that does not fit
        what it points to is passed over, at the price of a walk from the start."""
        if not wait and not self.offset_index.is_loaded:
            raise WouldBlock
        entry = self.offset_index.lookup(offset)
        if entry.position:
            headers = self.iter_headers(entry.position, wait=wait)
            indexed = self._indexed(headers, entry.offset)
            if indexed:
                yield from indexed
                yield from headers
                return
        yield from self.iter_headers(0, wait=wait)

    @staticmethod
    def _indexed(headers: Iterator[BatchHeader], offset: int) -> list[BatchHeader]:
        """The batches up to the one that ends at an indexed `offset`; none if no one does. It is
        the first, unless Apache Kafka took several for one entry."""
        found: list[BatchHeader] = []
        try:
            for header in headers:
                if header.last_offset > offset:
                    return []
                found.append(header)
                if header.last_offset == offset:
                    return found
        except BatchError:
            pass
        return []

    def locate(self, offset: int, *, wait: bool, end_offset: int = LAST_OFFSET) -> int | None:
        """Where the first batch begins whose last offset is at or behind `offset`. A batch that
        reaches `end_offset` cannot be in its place; what is behind it can still be found."""
        expected, passed, damaged, position = self.base_offset, None, None, None
        for header in self.headers_near(offset, wait=wait):
            if header.base_offset < expected or header.last_offset >= end_offset:
                damaged = header
                continue
            if header.last_offset >= offset:
                if header.base_offset <= offset:
                    return header.position
                position = header.position
                break
            expected, passed, damaged = header.next_offset, header, None
        if damaged is not None:
            raise CorruptBatch(f"{self.file.path} is out of order at byte {damaged.position}")
        if passed is not None:
            self.read_batch(passed, wait=wait)  # there is a gap: did the batch before it tell so?
        return position

    def read_batch(self, header: BatchHeader, *, wait: bool = True) -> ReadableBuffer:
        """The whole batch that `header` was read from, checked."""
        batch = self.read_bytes(header.position, header.size, wait=wait)
        validate(batch, 0, header)
        return batch

    def next_offset(self) -> int:
        """The offset after the last batch."""
        next_offset = self.base_offset
        for header in self.headers_near(self.offset_index.last().offset, wait=True):
            next_offset = header.next_offset
        return next_offset

    # -------------------------------------------------------------------------------- timestamps

    @property
    def max_timestamp(self) -> int:
        known = self._max_timestamp
        return self._load_max_timestamp() if known is None else known

    @property
    def knows_max_timestamp(self) -> bool:
        """Whether `max_timestamp` is known without reading the disk."""
        return self._max_timestamp is not None

    @property
    def offset_of_max_timestamp(self) -> int:
        return self._offset_of_max_timestamp if self.max_timestamp >= 0 else self.base_offset

    def _load_max_timestamp(self) -> int:
        if self._max_timestamp is None:
            # What is indexed by offset was, at that moment, indexed by time.
            newest = self.time_index.last()
            start = max(newest.offset, self.offset_index.last().offset)
            self._find_newest(newest, start, self.size)
        assert self._max_timestamp is not None
        return self._max_timestamp

    def _find_newest(self, known: TimestampOffset, start_offset: int, end: int) -> None:
        """Of the batches from `start_offset` to byte `end`, as far as they can be read."""
        timestamp, offset = known
        try:
            for header in self.headers_near(start_offset, wait=True):
                if header.position >= end:
                    break
                if header.max_timestamp > timestamp:
                    timestamp, offset = header.max_timestamp, header.last_offset
        except BatchError:
            pass  # reads of that place say so
        self._offset_of_max_timestamp = offset
        self._max_timestamp = timestamp

    @property
    def first_timestamp(self) -> int:
        """Of the first batch; -1 in an empty segment."""
        if self._first_timestamp is None:
            try:
                first = next(self.iter_headers(0, wait=True), None)
            except BatchError:
                return NO_TIMESTAMP
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first.max_timestamp
        return self._first_timestamp

    def batches_since(self, timestamp: int) -> Iterator[BatchHeader]:
        """Headers of the batches that hold a record at or after `timestamp`, in offset order."""
        known = self.time_index.lookup(timestamp - 1)
        for header in self.headers_near(known.offset, wait=True):
            if header.max_timestamp >= timestamp:
                yield header

    # -------------------------------------------------------------------------------- life cycle

    def seal(self) -> None:
        """No more appends: the time index gets its last word."""
        if self.torn:
            self._undo_torn_write()
        if self.max_timestamp >= 0 and not self._does_without_indexes:
            self.time_index.append(self.max_timestamp, self._offset_of_max_timestamp)

    def flush_indexes(self) -> None:
        if not self._does_without_indexes:
            self.offset_index.flush()
            self.time_index.flush()
        self.txn_index.flush()

    @property
    def _does_without_indexes(self) -> bool:
        """A few batches are scanned faster than two files are made, and most logs of a broker with
        many partitions have no more."""
        return (
            self.size <= UNINDEXED_BYTES
            and not len(self.offset_index)
            and not self.fs.exists(self.offset_index.path)
            and not self.fs.exists(self.time_index.path)
        )

    @property
    def indexes_are_rewritten(self) -> bool:
        """Whether the index files on disk may say what is no longer true."""
        return self.offset_index.is_rewritten or self.time_index.is_rewritten

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
        self.offset_index.sync()
        self.time_index.sync()
        self.txn_index.sync()

    def close(self) -> None:
        self.file.close()

    def indexes_are_sane(self) -> bool:
        return self.txn_index.is_sane(self.base_offset) and self.sparse_indexes_are_sane()

    def sparse_indexes_are_sane(self) -> bool:
        if self._does_without_indexes:
            return True
        return self.offset_index.is_sane(self.size) and self.time_index.is_sane()

    def truncate_to_position(self, position: int, offset: int) -> None:
        self.cut(position)
        self.truncate_indexes(position, offset)
        self.txn_index.truncate_to(offset)
        self.flush_indexes()

    def cut(self, position: int) -> None:
        self.file.truncate(position)
        self.size = position
        self.verified.cut(position)
        self.torn = False
        if not position:
            self._first_timestamp = None

    def truncate_indexes(self, position: int, offset: int) -> None:
        """Forget what the sparse indexes say of batches from `position` on, whose offsets begin
        with `offset`."""
        if position:
            self.offset_index.truncate_to(offset)
            self.time_index.truncate_to(offset)
        else:
            self.reset_sparse_indexes()
        # A crash may have left less of the time index than of the other.
        newest = self.time_index.last()
        self._find_newest(newest, newest.offset, position)
        self.bytes_since_index_entry = 0

    def reset_sparse_indexes(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self.bytes_since_index_entry = 0

    def commit_cleaned(self) -> None:
        """A compacted segment is whole: from now on it replaces those it was made from, even if
        the broker stops here. Waits for the disk."""
        self.change_suffix(".swap")
        self.fs.sync_directory(self.directory)

    def change_suffix(self, suffix: str) -> None:
        """Rename all files of the segment, the log last: it is the one that counts. Others may be
        reading it meanwhile."""
        self.suffix = suffix
        self.offset_index.rename(self._path("index"))
        self.time_index.rename(self._path("timeindex"))
        self.txn_index.rename(self._path("txnindex"))
        with _renaming:
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
