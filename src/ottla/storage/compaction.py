"""Log compaction: the log keeps the latest record of each key.

A round has two passes. The first pass reads the dirty part of the log, from `first_dirty_offset` to
`end_offset`, and records the latest offset of each key (compaction_map.py). If the map fills up,
the round covers only what has been read so far. The second pass reads everything before that point,
clean and dirty, and writes the records to keep (compaction_filter.py) to new segments.

Adjacent segments are merged as long as together they do not exceed `segment.bytes`, so that a log
does not end up as many small files. The output of a group of segments is named after the first one,
with the suffix `.cleaned`, and is synced before it is reported. A crash leaves `.cleaned` files,
which the next start removes; the log itself does not change before `Log.replace_segments`. Every
batch is verified before it is copied, so a damaged batch never gets a new checksum.

`compact` runs in a worker process (compaction_worker.py), or in-process in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ottla.base.ports import File, FileSystem, ReadableBuffer
from ottla.storage.compaction_filter import BatchFilter, CleanedTransactions
from ottla.storage.compaction_job import (
    CleanedSegment,
    CompactionJob,
    CompactionResult,
    CompactionStats,
    SourceSegment,
)
from ottla.storage.compaction_map import OffsetMap
from ottla.storage.segment import MAX_RELATIVE_OFFSET, MAX_SEGMENT_BYTES, Segment, segment_path
from ottla.wire.records.batch import HEADER_SIZE, MAGIC, BatchHeader, read_header, validate
from ottla.wire.records.errors import BatchError, CorruptBatch
from ottla.wire.records.record import iter_keys

CLEANED_SUFFIX = ".cleaned"

Throttle = Callable[[int], None]
"""Called with the number of bytes that were read or written; may sleep."""


def compact(
    fs: FileSystem,
    job: CompactionJob,
    *,
    throttle: Throttle = lambda _: None,
    on_cleaned: Callable[[CleanedSegment], None] = lambda _: None,
) -> CompactionResult:
    """Run one round of compaction.

    Args:
        fs: File system that holds the log.
        job: The segments to compact, and the limits.
        throttle: Called with the number of bytes that were read or written; may sleep.
        on_cleaned: Called with each new segment as soon as it is complete and synced.

    Raises:
        OSError: A file could not be read or written.
        BatchError: The log is damaged.
    """
    compaction = _Compaction(fs, job, throttle)
    next_dirty_offset = compaction.build_map()
    groups = group_segments(
        [source for source in job.segments if source.base_offset < next_dirty_offset],
        job.segment_bytes,
        job.segment_index_bytes,
        job.end_offset,
    )
    cleaned = []
    for group in groups:
        segment = compaction.clean(group)
        on_cleaned(segment)
        cleaned.append(segment)
    return CompactionResult(next_dirty_offset, compaction.stats, cleaned)


def remove_cleaned(fs: FileSystem, directory: str) -> None:
    """Remove the files of a compaction that did not finish."""
    try:
        names = fs.list(directory)
    except FileNotFoundError:
        return
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            fs.remove(f"{directory}/{name}")


def group_segments(
    segments: Sequence[SourceSegment], max_bytes: int, max_index_bytes: int, end_offset: int
) -> list[list[SourceSegment]]:
    """Group adjacent segments whose logs and indexes fit into one segment."""
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    groups: list[list[SourceSegment]] = []
    log_bytes = index_bytes = time_index_bytes = 0
    for segment, end in zip(segments, ends, strict=True):
        log_bytes += segment.size
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
        if (
            groups
            and log_bytes <= max_bytes
            and max(index_bytes, time_index_bytes) <= max_index_bytes
            and (not segment.size or end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
            continue
        groups.append([segment])
        log_bytes, index_bytes = segment.size, segment.index_bytes
        time_index_bytes = segment.time_index_bytes
    return groups


class _Compaction:
    def __init__(self, fs: FileSystem, job: CompactionJob, throttle: Throttle) -> None:
        self._fs = fs
        self._job = job
        self._throttle = throttle
        self.stats = CompactionStats()
        self._map = OffsetMap(
            job.memory_bytes, job.load_factor, job.end_offset - job.first_dirty_offset
        )
        self._filter = BatchFilter(
            self._map,
            CleanedTransactions(job.aborted),
            job.producers,
            job.end_offset,
            job.now_ms,
            job.delete_retention_ms,
            self.stats,
        )

    # ------------------------------------------------------------------------------- first pass

    def build_map(self) -> int:
        """Record the latest offset of each dirty key, and return the first offset not covered."""
        job = self._job
        transactions = CleanedTransactions(
            txn for txn in job.aborted if txn.last_offset >= job.first_dirty_offset
        )
        for source, end_offset in self._dirty_segments():
            for header, batch in self._batches(source):
                if not self._map_batch(header, batch, transactions):
                    return self._mapped_to()
            self._map.latest_offset = end_offset - 1
        return self._mapped_to()

    def _dirty_segments(self) -> Iterator[tuple[SourceSegment, int]]:
        segments = self._job.segments
        ends = [segment.base_offset for segment in segments[1:]] + [self._job.end_offset]
        for source, end_offset in zip(segments, ends, strict=True):
            if end_offset > self._job.first_dirty_offset:
                yield source, end_offset

    def _map_batch(
        self, header: BatchHeader, batch: ReadableBuffer, transactions: CleanedTransactions
    ) -> bool:
        start_offset = self._job.first_dirty_offset
        if header.last_offset < start_offset:
            return True
        if header.is_control:
            transactions.ends_empty_transaction(header, batch)
        elif not transactions.is_aborted(header):
            self.stats.mapped_records += header.record_count
            if not self._map.put_all(iter_keys(batch, header), start_offset):
                return False
        self._map.latest_offset = header.last_offset
        return True

    def _mapped_to(self) -> int:
        self.stats.map_utilization = self._map.utilization
        return self._map.latest_offset + 1

    # ------------------------------------------------------------------------------ second pass

    def clean(self, group: Sequence[SourceSegment]) -> CleanedSegment:
        """Write the records to keep from a group of segments to a new segment, and sync it."""
        job = self._job
        new = Segment(
            self._fs, job.directory, group[0].base_offset, new=True, suffix=CLEANED_SUFFIX
        )
        try:
            for index in (new.offset_index, new.time_index, new.txn_index):
                index.remove()  # left by an earlier attempt
            new.file = output = _WriteBehind(new.file, job.io_buffer_bytes, self._throttle)
            for source in group:
                self._copy_kept(source, new)
            for transaction in self._filter.transactions.pop_retained():
                new.txn_index.append(transaction)
            new.seal()
            output.sync()
            new.flush_indexes()
            new.sync_indexes()
            self.stats.written_bytes += new.size
        except BaseException:
            new.remove()
            raise
        new.close()
        return CleanedSegment(
            new.base_offset,
            [source.base_offset for source in group],
            new.size,
            self._fs.modified_ms(self._path(group[-1])),
        )

    def _copy_kept(self, source: SourceSegment, new: Segment) -> None:
        interval = self._job.index_interval_bytes
        for header, batch in self._batches(source):
            self.stats.read_bytes += header.size
            kept = self._filter.apply(header, batch)
            if kept is None:
                continue
            if new.size + len(kept) > MAX_SEGMENT_BYTES:
                raise CorruptBatch(f"{new.file.path} would exceed {MAX_SEGMENT_BYTES} bytes")
            new.append(
                [kept], len(kept), header.last_offset, read_header(kept).max_timestamp, interval
            )

    # -------------------------------------------------------------------------------- the source

    def _path(self, source: SourceSegment) -> str:
        return segment_path(self._job.directory, source.base_offset, "log")

    def _batches(self, source: SourceSegment) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield all batches of a segment, verified, each with a header relative to its bytes."""
        file = self._fs.open(self._path(source))
        try:
            yield from self._checked_batches(file, source)
        finally:
            file.close()

    def _checked_batches(
        self, file: File, source: SourceSegment
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        position, expected_offset = 0, source.base_offset
        chunk, start = memoryview(b""), 0
        while position < source.size:
            if start + len(chunk) - position < HEADER_SIZE:
                chunk, start = self._read(file, position, 0), position
            try:
                header = read_header(chunk, position - start)
                if (
                    header.magic != MAGIC
                    or not HEADER_SIZE <= header.size <= source.size - position
                ):
                    raise CorruptBatch("it is not a batch")
                if header.end > len(chunk):
                    chunk, start = self._read(file, position, header.size), position
                batch = chunk[position - start : position - start + header.size]
                header = read_header(batch)
                validate(batch, 0, header)
                if header.base_offset < expected_offset:
                    raise CorruptBatch(f"its offset is {header.base_offset}")
            except BatchError as error:
                raise CorruptBatch(
                    f"{file.path} is damaged at byte {position}, where offset "
                    f"{expected_offset} is expected: {error}"
                ) from None
            yield header, batch
            expected_offset = header.next_offset
            position += header.size

    def _read(self, file: File, position: int, length: int) -> memoryview:
        data = file.read(position, max(length, self._job.io_buffer_bytes, HEADER_SIZE))
        self._throttle(len(data))
        return memoryview(data)


class _WriteBehind:
    """A file that is written sequentially, in chunks of at least `buffer_bytes`."""

    def __init__(self, file: File, buffer_bytes: int, throttle: Throttle) -> None:
        self.path = file.path
        self._file = file
        self._buffer_bytes = buffer_bytes
        self._throttle = throttle
        self._pending: list[ReadableBuffer] = []
        self._pending_bytes = 0
        self._written = 0

    def size(self) -> int:
        return self._written + self._pending_bytes

    def write(self, position: int, buffers: Sequence[ReadableBuffer]) -> None:
        assert position == self.size(), "only appending"
        self._pending += buffers
        self._pending_bytes += sum(map(len, buffers))
        if self._pending_bytes >= self._buffer_bytes:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        self._file.write(self._written, [b"".join(self._pending)])
        self._throttle(self._pending_bytes)
        self._written += self._pending_bytes
        self._pending, self._pending_bytes = [], 0

    def read(self, position: int, length: int) -> bytes:
        self._flush()
        return self._file.read(position, length)

    def read_cached(self, position: int, length: int) -> bytes | None:
        return self.read(position, length)

    def range_cached(self, position: int, length: int) -> None:
        """Return None: a file that is being written is not sent to clients."""

    def truncate(self, size: int) -> None:
        self._flush()
        self._file.truncate(size)
        self._written = size

    def sync(self) -> None:
        self._flush()
        self._file.sync()

    def close(self) -> None:
        self._file.close()
