"""A segment of a log: one log file and its indexes.

    <base offset, 20 digits>.log        batches back to back
                            .index      offset -> position  (index.py)
                            .timeindex  timestamp -> offset (index.py)
                            .txnindex   aborted transactions, if any (txn_index.py)

Only the last segment of a log is appended to. A crash can leave its end torn and its indexes stale;
segment_recovery.py then checks every batch, truncates the file after the last good one and rebuilds
the indexes. A suffix after these names marks files that are to be removed (`.deleted`) or belong to
compaction (`.cleaned`, `.swap`).
"""

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
DELETED_SUFFIX = ".deleted"
MAX_RELATIVE_OFFSET = 2**31 - 1
LAST_OFFSET = 2**63 - 1

_renaming = Lock()
"""Held while a log file has been renamed but its `File` still has the old path."""


class WouldBlock(Exception):
    """The bytes are not in memory. Retry in a thread that may wait for the disk."""


def segment_path(directory: str, base_offset: int, extension: str) -> str:
    return f"{directory}/{base_offset:020d}.{extension}"


class Segment:
    """One segment of a log."""

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
        "has_torn_write",
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
            # Only if it is not empty: when ext4 closes a file that was truncated to zero, it
            # writes the file to disk, and the caller of close has to wait for that.
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
        self.has_torn_write = False
        """Whether a failed write left a partial batch that could not be removed yet."""
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
        """Write one batch at the end of the segment.

        Raises:
            OSError: The write failed. The batch is not part of the segment.
        """
        position = self.size
        if self.has_torn_write:
            self._undo_torn_write()
        if self._max_timestamp is None or self.bytes_since_index_entry > index_interval_bytes:
            self._load_for_append()
        try:
            self.file.write(position, buffers)
        except OSError:
            self.has_torn_write = True
            self._undo_torn_write()
            raise
        self.size = position + size
        self.record_batch(position, size, last_offset, max_timestamp, index_interval_bytes)

    def _load_for_append(self) -> None:
        """Load everything that may block or fail before the batch is written."""
        self._load_max_timestamp()
        self.offset_index.load()
        self.time_index.load()

    def record_batch(
        self,
        position: int,
        size: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> None:
        """Record the last batch, which begins at `position`, in the indexes and timestamps."""
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
        """Remove a partial batch before another one overwrites its beginning.

        The rest of it could otherwise be mistaken for a batch.
        """
        self.file.truncate(self.size)
        self.has_torn_write = False

    # ------------------------------------------------------------------------------------ read

    def read_bytes(self, position: int, length: int, *, wait: bool) -> ReadableBuffer:
        """Return up to `length` bytes; fewer at the end of the segment.

        Raises:
            WouldBlock: `wait` is false and the bytes are not in memory.
        """
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
        # The bytes may come from the page cache after all, but that is unknown here. Set before and
        # after the read to close a race with the event loop, which may add a range in between.
        self.verified.was_read_from_disk = True
        try:
            return self.file.read(position, length)
        except FileNotFoundError:
            with _renaming:  # another thread may be renaming the file; wait for its new path
                return self.file.read(position, length)
        finally:
            self.verified.was_read_from_disk = True

    def boundary(self, limit: int, max_offset: int) -> OffsetPosition | None:
        """Return the base offset and position of the last indexed batch where a range may end.

        The batch begins at or before byte `limit`, and all batches before it lie below
        `max_offset`. Returns None if the index or the header of the batch is not in memory, or if
        they disagree.
        """
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
        """Return bytes that need not be verified again as a range of the file.

        Returns None if they must be verified or are not in memory.
        """
        if not self.verified.covers(start, end):
            return None
        return self.file.range_cached(start, end - start)

    def iter_headers(self, position: int, *, wait: bool) -> Iterator[BatchHeader]:
        """Yield the headers of the batches from `position` on, with their positions in the file.

        Raises:
            CorruptBatch: The bytes at a position are not a batch header.
            WouldBlock: `wait` is false and a header is not in memory.
        """
        chunk, start = self.read_bytes(position, SCAN_CHUNK_BYTES, wait=wait), position
        while (left := self.size - position) > 0:
            if position + HEADER_SIZE > start + len(chunk):
                chunk, start = self.read_bytes(position, SCAN_CHUNK_BYTES, wait=wait), position
            header = read_header(chunk, position - start)
            is_whole = HEADER_SIZE <= header.size <= left
            if not is_whole or header.magic != MAGIC or header.last_offset_delta < 0:
                raise CorruptBatch(f"{self.file.path} has no batch at byte {position}")
            yield header._replace(position=position)
            position += header.size

    def headers_near(self, offset: int, *, wait: bool) -> Iterator[BatchHeader]:
        """Yield headers, beginning with an indexed batch at or before `offset`.

        If the index entry does not match the log, the scan starts at the beginning of the segment.
        """
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
        """Return the headers up to the batch that ends at an indexed `offset`, or none.

        That is normally the first header. Apache Kafka may write one index entry for several
        batches, with the position of the first and the last offset of the last one.
        """
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
        """Return the position of the first batch whose last offset is at or after `offset`.

        A batch that reaches `end_offset` must be damaged. It is skipped, so that batches after it
        can still be found.

        Raises:
            CorruptBatch: Damage makes it impossible to tell where `offset` is.
            WouldBlock: `wait` is false and a header is not in memory.
        """
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
            raise CorruptBatch(
                f"{self.file.path}: the offsets are out of order at byte {damaged.position}"
            )
        if passed is not None:
            # `offset` lies in a gap or after the last batch. Verify the batch before that, because
            # a damaged last offset would make existing records look missing.
            self.read_batch(passed, wait=wait)
        return position

    def read_batch(self, header: BatchHeader, *, wait: bool = True) -> ReadableBuffer:
        """Read and verify the complete batch that belongs to `header`."""
        batch = self.read_bytes(header.position, header.size, wait=wait)
        validate(batch, 0, header)
        return batch

    def next_offset(self) -> int:
        """Return the offset after the last batch."""
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
            # Offset entries are always added together with time entries, so the time index already
            # covers the batches up to the last offset entry.
            newest = self.time_index.last()
            start = max(newest.offset, self.offset_index.last().offset)
            self._find_newest(newest, start, self.size)
        assert self._max_timestamp is not None
        return self._max_timestamp

    def _find_newest(self, known: TimestampOffset, start_offset: int, end: int) -> None:
        """Find the largest timestamp of the batches from `start_offset` to byte `end`."""
        timestamp, offset = known
        try:
            for header in self.headers_near(start_offset, wait=True):
                if header.position >= end:
                    break
                if header.max_timestamp > timestamp:
                    timestamp, offset = header.max_timestamp, header.last_offset
        except BatchError:
            pass  # reads of that place report the damage
        self._offset_of_max_timestamp = offset
        self._max_timestamp = timestamp

    @property
    def first_timestamp(self) -> int:
        """Timestamp of the first batch; -1 in an empty segment."""
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
        """Yield the headers of batches with a record at or after `timestamp`, in offset order."""
        known = self.time_index.lookup(timestamp - 1)
        for header in self.headers_near(known.offset, wait=True):
            if header.max_timestamp >= timestamp:
                yield header

    # -------------------------------------------------------------------------------- life cycle

    def seal(self) -> None:
        """Undo a torn write, and bring the time index up to date before the segment is closed."""
        if self.has_torn_write:
            self._undo_torn_write()
        if self.max_timestamp >= 0 and not self._omits_indexes:
            self.time_index.append(self.max_timestamp, self._offset_of_max_timestamp)

    def flush_indexes(self) -> None:
        if not self._omits_indexes:
            self.offset_index.flush()
            self.time_index.flush()
        self.txn_index.flush()

    @property
    def _omits_indexes(self) -> bool:
        """Whether the segment is so small that it needs no index files.

        Scanning a few batches is faster than creating two files, and most logs of a broker with
        many partitions are that small.
        """
        return (
            self.size <= UNINDEXED_BYTES
            and not len(self.offset_index)
            and not self.fs.exists(self.offset_index.path)
            and not self.fs.exists(self.time_index.path)
        )

    @property
    def indexes_are_rewritten(self) -> bool:
        """Whether the index files on disk may hold entries that are no longer true."""
        return self.offset_index.is_rewritten or self.time_index.is_rewritten

    @property
    def is_detached(self) -> bool:
        """Whether the segment was removed from its log, so that it need not be synced."""
        return self.is_removed or self.suffix != ""

    def sync_log(self) -> None:
        """Sync the log file. Safe while another thread renames or removes files."""
        try:
            self.file.sync()
        except FileNotFoundError:
            if not self.is_detached:
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
        if self._omits_indexes:
            return True
        return self.offset_index.is_sane(self.size) and self.time_index.is_sane()

    def truncate_to_position(self, position: int, offset: int) -> None:
        self.truncate_file(position)
        self.truncate_indexes(position, offset)
        self.txn_index.truncate_to(offset)
        self.flush_indexes()

    def truncate_file(self, position: int) -> None:
        self.file.truncate(position)
        self.size = position
        self.verified.truncate(position)
        self.has_torn_write = False
        if not position:
            self._first_timestamp = None

    def truncate_indexes(self, position: int, offset: int) -> None:
        """Remove the index entries of all batches from `position` on, which begin at `offset`."""
        if position:
            self.offset_index.truncate_to(offset)
            self.time_index.truncate_to(offset)
        else:
            self.reset_sparse_indexes()
        # A crash may have left fewer entries in the time index than in the offset index.
        newest = self.time_index.last()
        self._find_newest(newest, newest.offset, position)
        self.bytes_since_index_entry = 0

    def reset_sparse_indexes(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self.bytes_since_index_entry = 0

    def commit_cleaned(self) -> None:
        """Mark a compacted segment as complete. May block on the disk.

        From now on it replaces the segments it was made from, even if the broker crashes.
        """
        self.change_suffix(".swap")
        self.fs.sync_directory(self.directory)

    def change_suffix(self, suffix: str) -> None:
        """Rename all files of the segment, which may be read at the same time.

        The log file comes last, because it is the one that makes the segment exist.
        """
        self.suffix = suffix
        self.offset_index.rename(self._path("index"))
        self.time_index.rename(self._path("timeindex"))
        self.txn_index.rename(self._path("txnindex"))
        with _renaming:
            self.fs.rename(self.file.path, self._path("log"))
            self.file.path = self._path("log")

    def remove(self) -> None:
        """Delete the files of the segment.

        A file that a concurrent flush is writing may remain; the next start removes it.
        """
        self.is_removed = True
        self.file.close()
        self.fs.remove(self.file.path)
        self.offset_index.remove()
        self.time_index.remove()
        self.txn_index.remove()

    def unload(self) -> None:
        self.offset_index.unload()
        self.time_index.unload()
