"""The log of a partition: its public face, and appends.

A log is a sequence of contiguous segments from `log_start_offset` to `log_end_offset`. Its state
and the invariants that every operation keeps are in log_state.py; appends add these:

- The offsets of batches increase strictly, and their leader epochs never decrease. The next batch
  gets `log_end_offset`.
- A failed append changes nothing: no offset, no producer state, no index.

Only one thread, the broker's event loop, calls methods that change a log. `read(wait=True)`, the
timestamp lookups (log_reader.py) and `FlushJob.run` (flush.py) may run concurrently in other
threads: they access files, but not the current list of segments. A truncation may run in another
thread as long as nothing else changes the log (`is_truncating`).

The broker maintains the high watermark, between the log start offset and the log end offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import ReadableBuffer
from ottla.storage import compaction_swap, log_flush, retention, truncation
from ottla.storage.flush import FlushJob
from ottla.storage.log_reader import FoundOffset, LogSlice
from ottla.storage.log_state import LogState
from ottla.storage.producer_snapshots import marker_of
from ottla.storage.segment import MAX_RELATIVE_OFFSET, Segment
from ottla.storage.txn_index import AbortedTxn
from ottla.storage.write_failure import describe_write_error
from ottla.wire.records.batch import NO_PRODUCER_ID, STAMP_SIZE, BatchHeader, stamped_prefix


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    max_timestamp: int
    """Largest timestamp of the stored batch; of the original one if this is a retry."""
    is_duplicate: bool


class Log(LogState):
    """The log of one partition."""

    __slots__ = ()

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
        """Return a fixed share of segment.jitter.ms, so that logs do not all roll at once.

        A CRC, unlike `hash`, is the same in every process, so a restart does not change the share.
        """
        jitter = self._config.segment_jitter_ms
        return crc32(f"{self.partition}@{segment.base_offset}".encode()) % jitter if jitter else 0

    def _roll_offset(self, base_offset: int, last_offset: int) -> int:
        """Return the base offset of a new segment for a batch.

        This is the end of the previous segment even if the batch begins later, as it may when a
        follower copies a compacted log, because recovery treats a gap between segments as data
        loss. If the gap is too large for relative offsets, it is the base offset of the batch.
        """
        end_offset = self.written_end
        return end_offset if last_offset - end_offset <= MAX_RELATIVE_OFFSET else base_offset

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
        return self.reader.read(
            offset, max_bytes, max_offset, at_least_one=at_least_one, wait=wait, in_file=in_file
        )

    def aborted_transactions(
        self, first_offset: int, end_offset: int, *, wait: bool = True
    ) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap [first_offset, end_offset).

        Raises:
            WouldBlock: `wait` is false and a transaction index would have to be read from disk.
        """
        return self.reader.aborted_transactions(first_offset, end_offset, wait=wait)

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """Return the first record at or after `timestamp`. May block on the disk."""
        return self.reader.offset_for_timestamp(timestamp)

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """Return the first record that has the largest timestamp in the log. May block on disk."""
        return self.reader.offset_of_max_timestamp()

    # ----------------------------------------------------------------------------------- flushing

    @property
    def wants_flush(self) -> bool:
        """Whether a segment was rolled since the last flush, or flush.messages is reached."""
        unflushed = self.unflushed_messages
        return bool(self.pending_snapshots) or unflushed >= self._config.flush_messages

    def begin_flush(self, *, with_indexes: bool = False) -> FlushJob:
        """Return a job that makes everything appended so far durable.

        Run it in any thread, then call `flushed` or `flush_failed`.

        Args:
            with_indexes: Whether to also save the indexes of the active segment, so that recovery
                can start near the recovery point instead of at the beginning of the segment.
        """
        return log_flush.begin_flush(self, with_indexes=with_indexes)

    def flushed(self, job: FlushJob, now_ms: int) -> None:
        """Advance the recovery point after `job` has run."""
        log_flush.flushed(self, job, now_ms)

    def flush_failed(self, job: FlushJob) -> None:
        """Schedule the work of `job` again: it is unknown how much of it reached the disk."""
        log_flush.flush_failed(self, job)

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
        """Write everything that is only in memory, and close the files, without syncing them.

        To close many logs, sync them all at once and then call `synced` on each.
        """
        log_flush.write_out(self)

    def synced(self) -> None:
        """Record that everything written by `write_out` has been synced."""
        log_flush.synced(self)

    # ------------------------------------------------------------------------------- removing data

    def advance_start_offset(self, offset: int) -> None:
        """Advance the log start offset after DeleteRecords or retention."""
        retention.advance_start_offset(self, offset)

    def detach_head(self, count: int, now_ms: int) -> list[Segment]:
        """Remove the oldest `count` segments, or fewer, and mark their files `.deleted`.

        Returns:
            The removed segments. The caller deletes the files when no reader can need them.
        """
        return retention.detach_head(self, count, now_ms)

    def replace_segments(self, new: Segment, old: Sequence[Segment]) -> list[Segment]:
        """Replace segments by a compacted one, and wait until that is durable."""
        return compaction_swap.replace_segments(self, new, old)

    def swap_segments(self, new: Segment, old: Sequence[Segment]) -> list[Segment]:
        """Exchange the files and the list of segments: the middle step of `replace_segments`.

        Returns:
            The old segments, marked `.deleted`.
        """
        return compaction_swap.swap_segments(self, new, old)

    def begin_truncation(self) -> None:
        """Announce a truncation. Flush jobs in progress no longer make anything durable."""
        truncation.begin_truncation(self)

    def end_truncation(self) -> None:
        """Allow other changes again after `begin_truncation`."""
        truncation.end_truncation(self)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Discard all records from `offset` on.

        Before the call, the recovery point in the checkpoint file must not exceed
        `end_after_truncation(offset)`.
        """
        truncation.truncate_to(self, offset, now_ms)

    def truncate_fully(self, offset: int, now_ms: int) -> None:
        """Discard all records. The next record gets `offset`."""
        truncation.truncate_fully(self, offset, now_ms)

    def end_after_truncation(self, offset: int) -> int:
        """Return the end of the last batch that a truncation to `offset` would keep."""
        return truncation.end_after_truncation(self, offset)
