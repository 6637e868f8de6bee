"""The log of a partition: contiguous segments from `log_start_offset` to `log_end_offset`.

Invariants
- The offsets of batches increase strictly, and their leader epochs never decrease. The next batch
  gets `log_end_offset`.
- Segments are ordered by base offset and cover the whole log. Only the last one is appended to.
- `log_start_offset <= high watermark <= log_end_offset`. The broker maintains the high watermark.
- Everything below `recovery_point` has been synced to disk.
- A failed append changes nothing: no offset, no producer state, no index.

Only one thread, the broker's event loop, calls methods that change a log. `read(wait=True)`, the
timestamp lookups (log_reader.py) and `FlushJob.run` (flush.py) may run concurrently in other
threads: they access files, but not the current list of segments. A truncation may run in another
thread as long as nothing else changes the log (`is_truncating`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import FileSystem, ReadableBuffer, write_unsynced
from ottla.base.types import TopicPartition
from ottla.storage.epoch_cache import LeaderEpochCache
from ottla.storage.flush import FlushGate, FlushJob
from ottla.storage.index import TIME_ENTRY_SIZE
from ottla.storage.log_reader import FoundOffset, LogReader, LogSlice, segments_from
from ottla.storage.producer_snapshots import (
    marker_of,
    remove_snapshots_after,
    restore_producers,
    snapshot_path,
)
from ottla.storage.producer_state import CompletedTxn, ProducerState
from ottla.storage.segment import (
    MAX_RELATIVE_OFFSET,
    MAX_SEGMENT_BYTES,
    UNINDEXED_BYTES,
    Segment,
    segment_path,
)
from ottla.storage.txn_index import AbortedTxn
from ottla.storage.write_failure import describe_write_error
from ottla.wire.records.batch import NO_PRODUCER_ID, STAMP_SIZE, BatchHeader, stamped_prefix

DELETED_SUFFIX = ".deleted"
_base_offset = attrgetter("base_offset")


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    max_timestamp: int
    """Largest timestamp of the stored batch; of the original one if this is a retry."""
    is_duplicate: bool


class Log:
    """The log of one partition."""

    __slots__ = (
        "_clean_end",
        "_config",
        "_gap",
        "_job",
        "_max_index_entries",
        "_max_segment_bytes",
        "_max_segment_ms",
        "_new_files",
        "_pending_snapshots",
        "_reader",
        "directory",
        "epochs",
        "fs",
        "gate",
        "is_truncating",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "on_write_error",
        "partition",
        "producers",
        "recovery_point",
        "segments",
        "topic_id",
        "unflushed_messages",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        partition: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        segments: list[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        producers: ProducerState,
        epochs: LeaderEpochCache,
        now_ms: int,
        is_on_disk: bool = False,
        snapshots: dict[int, bytes] | None = None,
    ) -> None:
        """Initialize the log from the state that recovery established.

        Args:
            is_on_disk: Whether everything is already on disk, after a clean shutdown.
            snapshots: Producer snapshots to write with the first flush, by offset.
        """
        self.fs = fs
        self.directory = directory
        self.partition = partition
        self.topic_id = topic_id
        self.config = config
        self.segments = segments
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.producers = producers
        self.epochs = epochs
        self.last_flush_ms = now_ms
        self.unflushed_messages = 0
        self._pending_snapshots: dict[int, bytes] = snapshots or {}
        self._new_files = not is_on_disk
        self._clean_end = log_end_offset if is_on_disk else None
        """Log end offset at the last clean shutdown; None after a crash or a truncation."""
        self._gap = (log_end_offset, log_end_offset)
        """(Offset of the last truncation, end of the last batch before it).

        They differ if a follower truncated its log to an offset inside a gap that compaction left.
        """
        self.gate = FlushGate()
        self.is_truncating = False
        """Set while another thread truncates the log; nothing else may change it then."""
        self.on_write_error: Callable[[Log, OSError, int], None] = _ignore_write_error
        """Called with each error of an append and the size of the batch that was to be written."""
        self._job: FlushJob | None = None
        self._reader = LogReader(self)

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        """Apply a new configuration from the next append on.

        Precomputes the values that every append needs.
        """
        self._config = config
        self._max_segment_bytes = min(config.segment_bytes, MAX_SEGMENT_BYTES)
        self._max_segment_ms = config.max_segment_ms
        self._max_index_entries = config.segment_index_bytes // TIME_ENTRY_SIZE

    @property
    def data_directory(self) -> str:
        """Path of the data directory that holds the log."""
        return self.directory.rpartition("/")[0]

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    # ---------------------------------------------------------------------------------- append

    def append(
        self, batch: ReadableBuffer, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Assign the next offsets to a validated batch and write it.

        A retry of a batch that is already in the log is not written again.

        Args:
            batch: The complete batch.
            header: Header of the batch.
            leader_epoch: Current leader epoch of the partition.
            now_ms: Current time, for rolling the segment.

        Returns:
            The offsets of the batch, or those of the original one if this is a retry.

        Raises:
            KafkaError: The batch was rejected or could not be written. The log has not changed.
        """
        if leader_epoch < self.epochs.latest_epoch:
            raise self._fenced(leader_epoch)
        producer_id, marker = header.producer_id, None
        if producer_id != NO_PRODUCER_ID:
            if header.is_control:
                marker = marker_of(batch, header)
                if marker is not None:
                    self.producers.check_marker(header, marker[1])
            else:
                repeated = self.producers.check(header)
                if repeated is not None:
                    return AppendResult(
                        repeated.first_offset, repeated.last_offset, repeated.timestamp, True
                    )
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        self._write(batch, header, base_offset, leader_epoch, now_ms)
        # The batch is in the log; nothing below can fail.
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, base_offset)
        if producer_id != NO_PRODUCER_ID:
            self._update_producer(header, base_offset, marker)
        self.log_end_offset = last_offset + 1
        self.unflushed_messages += header.last_offset_delta + 1
        return AppendResult(base_offset, last_offset, header.max_timestamp, False)

    def append_as_follower(self, batch: ReadableBuffer, header: BatchHeader, now_ms: int) -> None:
        """Write a batch with the offsets and the leader epoch that the leader assigned.

        Raises:
            KafkaError: The batch overlaps the log, has an old leader epoch, or cannot be written.
        """
        if header.base_offset < self.log_end_offset:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{self.partition}: the batch at offset {header.base_offset} is below the log "
                f"end offset {self.log_end_offset}",
            )
        if header.leader_epoch < self.epochs.latest_epoch:
            raise self._fenced(header.leader_epoch)
        marker = marker_of(batch, header)
        self._write(batch, header, header.base_offset, header.leader_epoch, now_ms)
        self.epochs.assign(header.leader_epoch, header.base_offset)
        self._update_producer(header, header.base_offset, marker)
        self.log_end_offset = header.next_offset
        self.unflushed_messages += header.record_count

    def _fenced(self, leader_epoch: int) -> KafkaError:
        return KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{self.partition} has records of leader epoch {self.epochs.latest_epoch}; it cannot "
            f"append records of the older leader epoch {leader_epoch}",
        )

    def _write(
        self,
        batch: ReadableBuffer,
        header: BatchHeader,
        base_offset: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        size = header.size
        last_offset = base_offset + header.last_offset_delta
        segment = self.segments[-1]
        try:
            if (
                segment.size + size > self._max_segment_bytes
                or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
                or len(segment.offset_index) >= self._max_index_entries
                or self._must_roll(segment, header.max_timestamp, now_ms)
            ):
                segment = self.roll(now_ms, self._roll_offset(base_offset, last_offset))
            if header.is_control:
                segment.txn_index.entries()  # loaded now, because the update must not block
            segment.append(
                [stamped_prefix(base_offset, leader_epoch, batch), memoryview(batch)[STAMP_SIZE:]],
                size,
                last_offset,
                header.max_timestamp,
                self._config.index_interval_bytes,
            )
        except OSError as error:
            self.on_write_error(self, error, size)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                describe_write_error(self.fs, self.data_directory, error, size),
            ) from error

    def _must_roll(self, segment: Segment, timestamp: int, now_ms: int) -> bool:
        """Return whether segment.ms requires a new segment for a batch with this timestamp."""
        first = segment.first_timestamp
        age = timestamp - first if first >= 0 <= timestamp else now_ms - segment.created_ms
        if age <= self._max_segment_ms - self._config.segment_jitter_ms:
            return False
        return segment.size > 0 and age > self._max_segment_ms - self._roll_jitter_ms(segment)

    def _roll_jitter_ms(self, segment: Segment) -> int:
        """Return a fixed share of segment.jitter.ms, so that logs do not all roll at once."""
        jitter = self._config.segment_jitter_ms
        return hash((self.partition, segment.base_offset)) % jitter if jitter else 0

    def _roll_offset(self, base_offset: int, last_offset: int) -> int:
        """Return the base offset of a new segment for a batch.

        This is the end of the previous segment even if the batch begins later, as it may when a
        follower copies a compacted log, because recovery treats a gap between segments as data
        loss. If the gap is too large for relative offsets, it is the base offset of the batch.
        """
        end_offset = self._written_end
        return end_offset if last_offset - end_offset <= MAX_RELATIVE_OFFSET else base_offset

    @property
    def _written_end(self) -> int:
        """First offset after the last batch, which is below the log end offset before a gap."""
        truncated_to, written_end = self._gap
        return written_end if self.log_end_offset == truncated_to else self.log_end_offset

    def _update_producer(
        self, header: BatchHeader, base_offset: int, marker: tuple[bool, int] | None
    ) -> None:
        """Record an appended batch in the producer state and, for an abort, in the txn index.

        The index is updated before the last stable offset advances, because readers in other
        threads first ask for that offset and then for the aborted transactions below it.
        """
        if marker is not None and marker[0]:
            producer_id, producers = header.producer_id, self.producers
            first_offset = producers.txn_first_offset(producer_id)
            if first_offset is not None:
                last_offset = base_offset + header.last_offset_delta
                stable = producers.stable_offset_without(producer_id, last_offset + 1)
                self.active.txn_index.append(
                    AbortedTxn(producer_id, first_offset, last_offset, stable)
                )
        self.producers.update(header, base_offset, marker)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Start a new segment at the end of the log, and take a producer snapshot for it."""
        if base_offset is None:
            base_offset = self._written_end
        old = self.segments[-1]
        if old.base_offset == base_offset and not old.size:
            return old
        old.seal()
        segment = self._new_segment(base_offset, now_ms)
        if not old.size:
            self._forget([old])
            old.remove()
        self.segments.append(segment)
        self._pending_snapshots[base_offset] = self.producers.encode()
        self._new_files = True
        return segment

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Create a segment. Leave no file if that fails, since the log may grow past its offset."""
        try:
            return Segment(self.fs, self.directory, base_offset, new=True, created_ms=now_ms)
        except OSError:
            with suppress(OSError):
                self.fs.remove(segment_path(self.directory, base_offset, "log"))
            raise

    # ------------------------------------------------------------------------------------ read

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
        """Return verified batches, beginning with the one that contains `offset`.

        Args:
            offset: Offset to read from.
            max_bytes: Maximum size of the result.
            max_offset: Batches that begin at or after this offset are not returned.
            at_least_one: Whether to return the first batch even if it exceeds `max_bytes`.
            wait: Whether the call may block on the disk.
            in_file: Whether the result may be a range of the file instead of bytes.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE if the log does not contain `offset`, CORRUPT_MESSAGE if
                the first batch is damaged, KAFKA_STORAGE_ERROR if the disk cannot be read.
            WouldBlock: `wait` is false and the read would have to wait for the disk.
        """
        return self._reader.read(
            offset, max_bytes, max_offset, at_least_one=at_least_one, wait=wait, in_file=in_file
        )

    def aborted_transactions(
        self, first_offset: int, end_offset: int, *, wait: bool = True
    ) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap [first_offset, end_offset).

        Raises:
            WouldBlock: `wait` is false and a transaction index would have to be read from disk.
        """
        return self._reader.aborted_transactions(first_offset, end_offset, wait=wait)

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """Return the first record at or after `timestamp`. May block on the disk."""
        return self._reader.offset_for_timestamp(timestamp)

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """Return the first record that has the largest timestamp in the log. May block on disk."""
        return self._reader.offset_of_max_timestamp()

    # ----------------------------------------------------------------------------------- flushing

    @property
    def wants_flush(self) -> bool:
        """Whether a segment was rolled since the last flush, or flush.messages is reached."""
        unflushed = self.unflushed_messages
        return bool(self._pending_snapshots) or unflushed >= self.config.flush_messages

    def begin_flush(self, *, with_indexes: bool = False) -> FlushJob:
        """Return a job that makes everything appended so far durable.

        Run it in any thread, then call `flushed` or `flush_failed`.

        Args:
            with_indexes: Whether to also save the indexes of the active segment, so that recovery
                can start near the recovery point instead of at the beginning of the segment.
        """
        active = self.active
        with_indexes = with_indexes or active.indexes_are_rewritten
        if with_indexes:
            active.flush_indexes()
        else:
            active.txn_index.flush()
        job = FlushJob(
            self._written_end,
            self.fs,
            self.directory,
            self._unsynced_segments()[:-1],
            active,
            self._pending_snapshots,
            self.epochs,
            self._new_files or active.txn_index.is_unsynced,
            with_indexes,
            self.unflushed_messages,
            self.gate,
            self.gate.truncations,
        )
        self._job = job
        self._pending_snapshots = {}
        self._new_files = False
        self.unflushed_messages = 0
        return job

    def _unsynced_segments(self) -> list[Segment]:
        """Return the segments after the recovery point, and one that may end exactly there."""
        return segments_from(self.segments, max(self.recovery_point - 1, 0))

    def flushed(self, job: FlushJob, now_ms: int) -> None:
        """Advance the recovery point after `job` has run.

        A job that was overtaken by a truncation has made nothing durable.
        """
        if job.is_outdated:
            job.offset = min(job.offset, self.recovery_point)
            self.flush_failed(job)
            return
        self._job = None
        self.recovery_point = max(self.recovery_point, min(job.offset, self.log_end_offset))
        self.last_flush_ms = now_ms

    def flush_failed(self, job: FlushJob) -> None:
        """Schedule the work of `job` again: it is unknown how much of it reached the disk."""
        self._job = None
        self._pending_snapshots = {**job.snapshots, **self._pending_snapshots}
        self._new_files = self._new_files or job.sync_directory
        self.unflushed_messages += job.messages

    def flush(self, now_ms: int, *, with_indexes: bool = False) -> None:
        """Flush in this thread. For shutdown and tests; the broker runs flush jobs in threads."""
        job = self.begin_flush(with_indexes=with_indexes)
        try:
            job.run()
        except OSError:
            self.flush_failed(job)
            raise
        self.flushed(job, now_ms)

    def close(self, now_ms: int) -> None:
        """Write and sync everything, so that the next start has nothing to check."""
        self.write_out()
        self.flush(now_ms, with_indexes=True)

    def write_out(self) -> None:
        """Write everything that is only in memory, and close the files.

        The data survives a power failure only once the files have been synced. `close` does so for
        one log. To close many logs, sync them all at once and then call `synced` on each.
        """
        end_offset = self._written_end
        if not self._is_written_out:
            if self.producers.producers or self.size > UNINDEXED_BYTES:
                self._pending_snapshots[end_offset] = self.producers.encode()
            self.active.seal()
            for segment in self._unsynced_segments():
                segment.flush_indexes()
            # Only this one: the snapshot of a segment asserts that everything before is synced.
            snapshot = self._pending_snapshots.get(end_offset)
            if snapshot is not None:
                path = snapshot_path(self.directory, end_offset)
                write_unsynced(self.fs, path, snapshot)
            self.epochs.flush(sync=False)
        for segment in self.segments:
            segment.close()

    def synced(self) -> None:
        """Record that everything written by `write_out` has been synced.

        Writes the snapshots of segments, which assert exactly that. They are worth another sync,
        because once records are deleted, only the snapshots still hold the state of their
        producers.
        """
        self.recovery_point = self._written_end
        for offset, snapshot in self._pending_snapshots.items():
            if offset != self.recovery_point:
                with suppress(OSError):
                    write_unsynced(self.fs, snapshot_path(self.directory, offset), snapshot)
        self._pending_snapshots = {}

    @property
    def _is_written_out(self) -> bool:
        return (
            self.log_end_offset == self._clean_end
            and not self._new_files
            and not self._pending_snapshots
            and not self.epochs.dirty
        )

    # ------------------------------------------------------------------------------- removing data

    def advance_start_offset(self, offset: int) -> None:
        """Advance the log start offset after DeleteRecords or retention."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def detach_head(self, count: int, now_ms: int) -> list[Segment]:
        """Remove the oldest `count` segments from the log and mark their files `.deleted`.

        The caller deletes the files when no reader can need them any more. Fewer segments are
        removed if the first remaining one has no snapshot on disk yet: after a power failure, the
        state of the producers of the deleted records would be lost. The rest can be removed after
        the next flush.

        Returns:
            The removed segments.
        """
        if count >= len(self.segments):
            self.roll(now_ms)
            count = min(count, len(self.segments) - 1)
        unwritten = self._unwritten_snapshots()
        while count and self.segments[count].base_offset in unwritten:
            count -= 1
        if not count:
            return []
        removed = self.segments[:count]
        self._forget(removed)
        self.advance_start_offset(self.segments[0].base_offset)
        return self._mark_deleted(removed)

    def _unwritten_snapshots(self) -> dict[int, bytes]:
        """Return the snapshots that are waiting for a flush or being written by one."""
        return {**(self._job.snapshots if self._job else {}), **self._pending_snapshots}

    def _forget(self, removed: Sequence[Segment]) -> None:
        gone = {segment.base_offset for segment in removed}
        self._use_segments([s for s in self.segments if s.base_offset not in gone])

    def _mark_deleted(self, removed: list[Segment]) -> list[Segment]:
        self._new_files = True  # the next flush also makes the removals durable
        for segment in removed:
            segment.change_suffix(DELETED_SUFFIX)
            self._pending_snapshots.pop(segment.base_offset, None)
            self.fs.remove(snapshot_path(self.directory, segment.base_offset))
        return removed

    def _use_segments(self, segments: list[Segment]) -> None:
        """Replace the list of segments so that concurrent readers notice.

        Clearing the cursors before and after the change ensures that a reader that combines old
        cursors with new segments, or the reverse, finds other cursors than it started with and
        starts over.
        """
        self._reader.forget()
        self.segments = segments
        self._reader.forget()

    def replace_segments(self, new: Segment, old: Sequence[Segment]) -> list[Segment]:
        """Replace segments by a compacted one, whose `.cleaned` files must be synced.

        This is crash-safe: the suffix `.swap` marks the new segment as complete, so that the old
        ones may be removed. The first and the last step block on the disk; the broker runs them in
        threads.
        """
        new.commit_cleaned()
        removed = self.swap_segments(new, old)
        self.fs.sync_directory(self.directory)
        return removed

    def swap_segments(self, new: Segment, old: Sequence[Segment]) -> list[Segment]:
        """Exchange the files and the list of segments: the middle step of `replace_segments`.

        Returns:
            The old segments, marked `.deleted`.
        """
        gone = {segment.base_offset for segment in old}
        kept = [s for s in self.segments if s.base_offset not in gone]
        for segment in old:
            segment.change_suffix(DELETED_SUFFIX)
        new.change_suffix("")
        self._use_segments(sorted([*kept, new], key=_base_offset))
        for base_offset in gone - {new.base_offset}:
            self._pending_snapshots.pop(base_offset, None)
            self.fs.remove(snapshot_path(self.directory, base_offset))
        self._write_next_snapshot(new)
        return list(old)

    def _write_next_snapshot(self, compacted: Segment) -> None:
        """Write the snapshot of the segment after a compacted one, if it is not on disk yet.

        Compaction may leave a gap at the end of a segment. The snapshot of the next segment shows
        recovery that the gap is not data loss, so it must not wait for the next flush.
        """
        later = [s.base_offset for s in self.segments if s.base_offset > compacted.base_offset]
        for snapshots in (self._pending_snapshots, self._job.snapshots if self._job else {}):
            if later and later[0] in snapshots:
                path = snapshot_path(self.directory, later[0])
                write_unsynced(self.fs, path, snapshots[later[0]])

    def begin_truncation(self) -> None:
        """Announce a truncation. Flush jobs in progress no longer make anything durable."""
        self.is_truncating = True
        self.gate.truncations += 1

    def end_truncation(self) -> None:
        self.is_truncating = False

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Discard all records from `offset` on, for a follower that diverged from its leader.

        Before the call, the recovery point in the checkpoint file must not exceed
        `end_after_truncation(offset)`, because a power failure during the truncation may leave
        any mixture of the files above that point.
        """
        if offset >= self.log_end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully(offset, now_ms)
            return
        written_end = self.end_after_truncation(offset)
        # The first segment stays even if it becomes empty: its snapshot holds earlier producers.
        removed = [segment for segment in self.segments[1:] if segment.base_offset >= offset]
        with self.gate.truncation():
            self._forget(removed)
            self._remove_after(offset, removed)
            position = self.active.locate(offset, wait=True)
            if position is not None:
                self.active.truncate_to_position(position, offset)
                self.active.file.sync()
            self.log_start_offset = min(self.log_start_offset, offset)
            self._finish_truncation(offset, written_end)

    def end_after_truncation(self, offset: int) -> int:
        """Return the end of the last batch that a truncation to `offset` would keep.

        This may be less than `offset`, because compaction leaves gaps.
        """
        segment = segments_from(self.segments, offset - 1)[0]
        end_offset = segment.base_offset
        for header in segment.headers_near(offset - 1, wait=True):
            if header.last_offset >= offset:
                break
            end_offset = header.next_offset
        return end_offset

    def truncate_fully(self, offset: int, now_ms: int) -> None:
        """Discard all records. The next record gets `offset`."""
        with self.gate.truncation():
            self._remove_after(-1, self.segments)
            self.segments = [self._new_segment(offset, now_ms)]
            self.fs.sync_directory(self.directory)  # the log must not begin at a later segment
            self.log_start_offset = offset
            self._finish_truncation(offset, offset)
            self.epochs.clear()
            self.producers.clear()

    def _remove_after(self, offset: int, segments: Sequence[Segment]) -> None:
        """Remove segments and the snapshots after `offset`, and sync the directory.

        The removal must be durable before anything is written in their place, or a power failure
        could leave a mixture of two histories. Snapshots are removed first: a segment that still
        has its snapshot would look valid even if the segments before it are missing.
        """
        for snapshots in (self._pending_snapshots, self._job.snapshots if self._job else {}):
            for stale in [o for o in snapshots if o > offset]:
                del snapshots[stale]
        remove_snapshots_after(self.fs, self.directory, offset)
        self.fs.sync_directory(self.directory)
        for segment in reversed(segments):
            segment.remove()
        if segments:
            self.fs.sync_directory(self.directory)

    def _finish_truncation(self, offset: int, written_end: int) -> None:
        self._reader.forget()
        self._clean_end = None
        self.log_end_offset = offset
        self._gap = offset, written_end
        self.recovery_point = min(self.recovery_point, written_end)
        self.epochs.truncate_from_end(offset)
        self._new_files = True
        restore_producers(
            self.fs,
            self.directory,
            self.segments,
            offset,
            self.producers,
            unwritten=self._unwritten_snapshots(),
        )


def _ignore_write_error(log: Log, error: OSError, needed_bytes: int) -> None:
    """Do nothing; `append` raises the error as well."""


def aborted_txn(completed: CompletedTxn, producers: ProducerState) -> AbortedTxn:
    """Return the index entry for a transaction that has just been aborted."""
    unstable = producers.first_unstable_offset
    stable = completed.last_offset + 1 if unstable is None else unstable
    return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
