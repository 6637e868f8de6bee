"""A partition's log: segments end to end, from `log_start_offset` to `log_end_offset`.

Invariants
- Offsets of batches grow strictly, their leader epochs do not fall; the next batch gets
  `log_end_offset`.
- Segments are ordered by base offset and cover everything; only the last one is appended to.
- `log_start_offset <= high watermark <= log_end_offset`; the watermark is kept by the broker.
- Everything below `recovery_point` is on disk for good (was synced).
- A failed append changes nothing: no offset, no producer state, no index.

One thread (the broker's loop) calls everything that changes a log. `read(wait=True)`, the timestamp
look-ups (log_reader.py) and `FlushJob.run` (flush.py) may run in other threads beside it: they
touch files, not the list of segments they were given. A truncation may run in another thread while
nobody else changes the log (`is_truncating`)."""

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
    remove_snapshots_behind,
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
    """Of the stored batch: of the first one, where this is a retry."""
    is_duplicate: bool


class Log:
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
        """`is_on_disk`: a clean shutdown has left everything so. `snapshots` are to be written with
        the first flush."""
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
        """Where the log ends as long as nothing has changed since a clean shutdown."""
        self._gap = (log_end_offset, log_end_offset)
        """(To where the log was truncated last, where the last batch before that ended): a follower
        may be told to forget what lies behind a gap."""
        self.gate = FlushGate()
        self.is_truncating = False
        """Whoever truncates it in another thread asks all others to leave it alone."""
        self.on_write_error: Callable[[Log, OSError, int], None] = _ignore_write_error
        """Called with each error of an append and the bytes that it was to write."""
        self._job: FlushJob | None = None
        self._reader = LogReader(self)

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        """In force from the next append on. What every append asks is worked out here, once."""
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
        """Give a validated batch the next offsets and write it. A retry of a known batch is not
        written again. Raises KafkaError; then nothing has changed."""
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
        # From here on nothing can fail: the batch is in the log.
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, base_offset)
        if producer_id != NO_PRODUCER_ID:
            self._update_producer(header, base_offset, marker)
        self.log_end_offset = last_offset + 1
        self.unflushed_messages += header.last_offset_delta + 1
        return AppendResult(base_offset, last_offset, header.max_timestamp, False)

    def append_as_follower(self, batch: ReadableBuffer, header: BatchHeader, now_ms: int) -> None:
        """Write a batch as its leader numbered it."""
        if header.base_offset < self.log_end_offset:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{self.partition}: batch {header.base_offset} is behind {self.log_end_offset}",
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
            f"{self.partition} has records of leader epoch {self.epochs.latest_epoch}; "
            f"none of epoch {leader_epoch} may follow",
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
                or self._is_old(segment, header.max_timestamp, now_ms)
            ):
                segment = self.roll(now_ms, self._roll_offset(base_offset, last_offset))
            if header.is_control:
                segment.txn_index.entries()  # its update must not have to wait for the disk
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

    def _is_old(self, segment: Segment, timestamp: int, now_ms: int) -> bool:
        """Whether a batch of this time must begin a new segment, by segment.ms."""
        first = segment.first_timestamp
        age = timestamp - first if first >= 0 <= timestamp else now_ms - segment.created_ms
        if age <= self._max_segment_ms - self._config.segment_jitter_ms:
            return False
        return segment.size > 0 and age > self._max_segment_ms - self._roll_jitter_ms(segment)

    def _roll_jitter_ms(self, segment: Segment) -> int:
        """A fixed share of segment.jitter.ms, so that logs do not all roll at once."""
        jitter = self._config.segment_jitter_ms
        return hash((self.partition, segment.base_offset)) % jitter if jitter else 0

    def _roll_offset(self, base_offset: int, last_offset: int) -> int:
        """Where a segment for a batch begins: where the last one ends, even if the batch (of a
        compacted log that is followed) begins later, because recovery takes a gap between segments
        for a loss. Unless the gap is too large for indexes."""
        end_offset = self._written_end
        return end_offset if last_offset - end_offset <= MAX_RELATIVE_OFFSET else base_offset

    @property
    def _written_end(self) -> int:
        """Where the last batch ends."""
        truncated_to, written_end = self._gap
        return written_end if self.log_end_offset == truncated_to else self.log_end_offset

    def _update_producer(
        self, header: BatchHeader, base_offset: int, marker: tuple[bool, int] | None
    ) -> None:
        """The index knows of an aborted transaction before the last stable offset passes it:
        readers in other threads ask for that offset first, and then for what was aborted below."""
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
        """Begin a new segment at the end of the log. A producer snapshot is taken for it."""
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
        """An attempt that fails must leave no file: the log may go on behind its beginning."""
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
        """Whole, verified batches from the one that holds `offset`, of those below `max_offset`.
        With `in_file` many of them may be given unread, as a range of their file.

        Raises KafkaError OFFSET_OUT_OF_RANGE outside the log and CORRUPT_MESSAGE where the next
        batch is damaged; WouldBlock if `wait` is false and the disk would have to be waited for."""
        return self._reader.read(
            offset, max_bytes, max_offset, at_least_one=at_least_one, wait=wait, in_file=in_file
        )

    def aborted_transactions(
        self, first_offset: int, end_offset: int, *, wait: bool = True
    ) -> list[AbortedTxn]:
        """Those that touch the range. WouldBlock as `read` does."""
        return self._reader.aborted_transactions(first_offset, end_offset, wait=wait)

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """The first record at or after `timestamp`. May wait for the disk."""
        return self._reader.offset_for_timestamp(timestamp)

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp of all. May wait for the disk."""
        return self._reader.offset_of_max_timestamp()

    # ----------------------------------------------------------------------------------- flushing

    @property
    def wants_flush(self) -> bool:
        """Whether a segment was closed since the last flush, or flush.messages is reached."""
        unflushed = self.unflushed_messages
        return bool(self._pending_snapshots) or unflushed >= self.config.flush_messages

    def begin_flush(self, *, with_indexes: bool = False) -> FlushJob:
        """`with_indexes` also saves what the active segment's indexes know, so that a recovery can
        begin near the recovery point instead of at the segment's start."""
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
        """Those behind the recovery point, and the one that may have been closed just at it."""
        return segments_from(self.segments, max(self.recovery_point - 1, 0))

    def flushed(self, job: FlushJob, now_ms: int) -> None:
        """`job` has run. One that was overtaken by a truncation has made nothing safe."""
        if job.is_overtaken:
            job.offset = min(job.offset, self.recovery_point)
            self.flush_failed(job)
            return
        self._job = None
        self.recovery_point = max(self.recovery_point, min(job.offset, self.log_end_offset))
        self.last_flush_ms = now_ms

    def flush_failed(self, job: FlushJob) -> None:
        """Nothing is known of what reached the disk: the next flush must do it all again."""
        self._job = None
        self._pending_snapshots = {**job.snapshots, **self._pending_snapshots}
        self._new_files = self._new_files or job.sync_directory
        self.unflushed_messages += job.messages

    def flush(self, now_ms: int, *, with_indexes: bool = False) -> None:
        """Flush and wait for it. For shutdown and tests; the broker runs jobs in threads."""
        job = self.begin_flush(with_indexes=with_indexes)
        try:
            job.run()
        except OSError:
            self.flush_failed(job)
            raise
        self.flushed(job, now_ms)

    def close(self, now_ms: int) -> None:
        """Leave everything on disk so that the next start has nothing to check."""
        self.write_out()
        self.flush(now_ms, with_indexes=True)

    def write_out(self) -> None:
        """Write all that is only in memory, and close. It survives a power cut only when the files
        have been synced: `close` does, and who closes many logs syncs them all at once and then
        tells each (`synced`)."""
        end_offset = self._written_end
        if not self._is_written_out:
            if self.producers.producers or self.size > UNINDEXED_BYTES:
                self._pending_snapshots[end_offset] = self.producers.encode()
            self.active.seal()
            for segment in self._unsynced_segments():
                segment.flush_indexes()
            # No others: a snapshot of a segment says that all before it is synced.
            snapshot = self._pending_snapshots.get(end_offset)
            if snapshot is not None:
                path = snapshot_path(self.directory, end_offset)
                write_unsynced(self.fs, path, snapshot)
            self.epochs.flush(sync=False)
        for segment in self.segments:
            segment.close()

    def synced(self) -> None:
        """All that was written out is on disk for good. Now the snapshots of segments follow, which
        say so. They are worth another sync: where records were deleted, only they remember their
        producers."""
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
        """Records before `offset` no longer exist (DeleteRecords, retention)."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def detach_head(self, count: int, now_ms: int) -> list[Segment]:
        """Take the oldest `count` segments out of the log and mark their files `.deleted`. The
        caller removes them once no reader can need them. Fewer are taken if the first that stays
        has no snapshot on disk yet: without it, a power cut would leave nothing to tell the
        producers of the deleted records from. They can go after the next flush."""
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
        """Those that a flush has yet to write, or is just writing."""
        return {**(self._job.snapshots if self._job else {}), **self._pending_snapshots}

    def _forget(self, removed: Sequence[Segment]) -> None:
        gone = {segment.base_offset for segment in removed}
        self._use_segments([s for s in self.segments if s.base_offset not in gone])

    def _mark_deleted(self, removed: list[Segment]) -> list[Segment]:
        self._new_files = True  # and old ones gone, which the next flush makes certain
        for segment in removed:
            segment.change_suffix(DELETED_SUFFIX)
            self._pending_snapshots.pop(segment.base_offset, None)
            self.fs.remove(snapshot_path(self.directory, segment.base_offset))
        return removed

    def _use_segments(self, segments: list[Segment]) -> None:
        """A reader who has the old cursors must not go on with the new segments unnoticed, nor the
        other way round: it finds other cursors than those it began with, and begins again."""
        self._reader.forget()
        self.segments = segments
        self._reader.forget()

    def replace_segments(self, new: Segment, old: Sequence[Segment]) -> list[Segment]:
        """Put a compacted segment (files suffixed `.cleaned`, synced) in the place of those it was
        made from. Crash-safe: `.swap` says that the new one is whole and the old ones may go.
        The first and the last step wait for the disk; the broker takes them in threads."""
        new.commit_cleaned()
        removed = self.swap_segments(new, old)
        self.fs.sync_directory(self.directory)
        return removed

    def swap_segments(self, new: Segment, old: Sequence[Segment]) -> list[Segment]:
        """The middle step: exchange the names, and what readers find. Returns the old segments,
        marked `.deleted`."""
        gone = {segment.base_offset for segment in old}
        kept = [s for s in self.segments if s.base_offset not in gone]
        for segment in old:
            segment.change_suffix(DELETED_SUFFIX)
        new.change_suffix("")
        self._use_segments(sorted([*kept, new], key=_base_offset))
        for base_offset in gone - {new.base_offset}:
            self._pending_snapshots.pop(base_offset, None)
            self.fs.remove(snapshot_path(self.directory, base_offset))
        self._vouch_for(new)
        return list(old)

    def _vouch_for(self, compacted: Segment) -> None:
        """The gap that compaction may have left behind a segment is no loss: the snapshot of the
        next segment says so. One that is not on disk yet must be, whatever happens now."""
        later = [s.base_offset for s in self.segments if s.base_offset > compacted.base_offset]
        for snapshots in (self._pending_snapshots, self._job.snapshots if self._job else {}):
            if later and later[0] in snapshots:
                path = snapshot_path(self.directory, later[0])
                write_unsynced(self.fs, path, snapshots[later[0]])

    def begin_truncation(self) -> None:
        """Flush jobs that are under way make nothing safe any more."""
        self.is_truncating = True
        self.gate.truncations += 1

    def end_truncation(self) -> None:
        self.is_truncating = False

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop everything from `offset` on (a follower that disagrees with its leader). When this
        begins, the checkpoint of the recovery point must not be above `kept_below(offset)`: what a
        power cut leaves of a truncation is not safe."""
        if offset >= self.log_end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully(offset, now_ms)
            return
        written_end = self.kept_below(offset)
        # The first stays, even if nothing of it does: its snapshot knows the producers before it.
        removed = [segment for segment in self.segments[1:] if segment.base_offset >= offset]
        with self.gate.truncation():
            self._forget(removed)
            self._remove_behind(offset, removed)
            position = self.active.locate(offset, wait=True)
            if position is not None:
                self.active.truncate_to_position(position, offset)
                self.active.file.sync()
            self.log_start_offset = min(self.log_start_offset, offset)
            self._ended_at(offset, written_end)

    def kept_below(self, offset: int) -> int:
        """Where the last batch that a truncation to `offset` leaves ends. Compaction leaves gaps,
        so that may be before `offset`."""
        segment = segments_from(self.segments, offset - 1)[0]
        end_offset = segment.base_offset
        for header in segment.headers_near(offset - 1, wait=True):
            if header.last_offset >= offset:
                break
            end_offset = header.next_offset
        return end_offset

    def truncate_fully(self, offset: int, now_ms: int) -> None:
        """Empty the log; the next record gets `offset`."""
        with self.gate.truncation():
            self._remove_behind(-1, self.segments)
            self.segments = [self._new_segment(offset, now_ms)]
            self.fs.sync_directory(self.directory)  # the log may not begin with a later one instead
            self.log_start_offset = offset
            self._ended_at(offset, offset)
            self.epochs.clear()
            self.producers.clear()

    def _remove_behind(self, offset: int, segments: Sequence[Segment]) -> None:
        """Remove what a truncation leaves nothing of, for certain, before anything is put in its
        place: of two histories a power cut could leave a mixture. The snapshots go first; with its
        snapshot, a segment that is left when those before it are gone would seem to belong."""
        for snapshots in (self._pending_snapshots, self._job.snapshots if self._job else {}):
            for stale in [o for o in snapshots if o > offset]:
                del snapshots[stale]
        remove_snapshots_behind(self.fs, self.directory, offset)
        self.fs.sync_directory(self.directory)
        for segment in reversed(segments):
            segment.remove()
        if segments:
            self.fs.sync_directory(self.directory)

    def _ended_at(self, offset: int, written_end: int) -> None:
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
    """Do nothing: the error is raised as well."""


def aborted_txn(completed: CompletedTxn, producers: ProducerState) -> AbortedTxn:
    """The index entry for a transaction that was just aborted."""
    unstable = producers.first_unstable_offset
    stable = completed.last_offset + 1 if unstable is None else unstable
    return AbortedTxn(completed.producer_id, completed.first_offset, completed.last_offset, stable)
