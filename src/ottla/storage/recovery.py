"""Opening a log, with recovery if the broker crashed.

After a clean shutdown the files are trusted and almost nothing is read. After a crash, only data
after the recovery point can be affected: every batch there is checked, the log is truncated before
the first damaged one, and the indexes, leader epochs and producer state are rebuilt to match. Files
of an interrupted compaction or deletion are completed or removed. Every repair is reported as a
message.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from ottla.base.config.topic import TopicConfig
from ottla.base.ports import FileSystem, write_atomically
from ottla.base.types import TopicPartition
from ottla.storage.checkpoint import MalformedCheckpoint
from ottla.storage.epoch_cache import NO_EPOCH, LeaderEpochCache
from ottla.storage.log import Log
from ottla.storage.producer_snapshots import (
    marker_of,
    remove_snapshots_after,
    remove_stray_snapshots,
    restore_producers,
    snapshot_path,
)
from ottla.storage.producer_state import CompletedTxn, MalformedSnapshot, ProducerState
from ottla.storage.segment import Segment
from ottla.storage.segment_files import Report, finish_interrupted_work, open_segments
from ottla.storage.segment_recovery import (
    Recovered,
    rebuild_indexes,
    recover_segment,
    recovery_start,
)
from ottla.storage.txn_index import aborted_txn
from ottla.wire.records.batch import NO_PRODUCER_ID, BatchHeader
from ottla.wire.records.errors import BatchError


@dataclass(frozen=True, slots=True)
class KnownLogState:
    """Everything that is known about a log before it is opened."""

    directory: str
    partition: TopicPartition
    topic_id: bytes
    config: TopicConfig
    is_clean: bool
    recovery_point: int
    log_start_offset: int
    now_ms: int


def open_log(fs: FileSystem, known: KnownLogState, report: Report) -> Log:
    """Open a log, or create it if it does not exist.

    Args:
        fs: File system that holds the log.
        known: State of the log from checkpoints and configuration.
        report: Called with a message about each repair.

    Returns:
        The log, ready for use.
    """
    finish_interrupted_work(fs, known.directory, report)
    segments = open_segments(fs, known.directory)
    epochs, has_epochs = _load_epochs(fs, known, report)
    producers = ProducerState()
    is_on_disk = False
    snapshots: dict[int, bytes] = {}
    if not segments:
        segments = [_first_segment(fs, known)]
        end_offset = segments[0].base_offset
        restore_producers(fs, known.directory, segments, end_offset, producers)
    elif known.is_clean and _matches_clean_shutdown(segments, known.recovery_point):
        is_on_disk, end_offset = True, known.recovery_point
        restore_producers(fs, known.directory, segments, end_offset, producers)
    else:
        safe_epochs = LeaderEpochCache(fs, known.directory)
        recovery = _Recovery(fs, known, segments, epochs, producers, report, safe_epochs)
        end_offset = recovery.run()
        snapshots = recovery.snapshots
    if known.log_start_offset > end_offset:
        report(
            f"{known.partition}: restarting the log at offset {known.log_start_offset}; it ended "
            f"at {end_offset}, before its log start offset"
        )
        segments = [_restart_at_log_start(fs, known, segments, producers)]
        is_on_disk, end_offset, snapshots = False, known.log_start_offset, {}
        epochs.clear()
    elif not has_epochs and end_offset > segments[0].base_offset:
        _rebuild_epochs(epochs, segments)
    remove_stray_snapshots(fs, known.directory, segments)
    _ = segments[-1].max_timestamp  # loaded before readers in other threads need it
    start_offset = min(max(known.log_start_offset, segments[0].base_offset), end_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    return Log(
        fs,
        known.directory,
        known.partition,
        known.topic_id,
        known.config,
        segments,
        log_start_offset=start_offset,
        log_end_offset=end_offset,
        recovery_point=end_offset if is_on_disk else min(known.recovery_point, end_offset),
        producers=producers,
        epochs=epochs,
        now_ms=known.now_ms,
        is_on_disk=is_on_disk,
        snapshots={offset: data for offset, data in snapshots.items() if offset <= end_offset},
    )


def _first_segment(fs: FileSystem, known: KnownLogState) -> Segment:
    start = max(known.log_start_offset, 0)
    return Segment(fs, known.directory, start, new=True, created_ms=known.now_ms)


def _restart_at_log_start(
    fs: FileSystem, known: KnownLogState, segments: list[Segment], producers: ProducerState
) -> Segment:
    """Replace all segments by an empty one at the log start offset, and return it.

    This is needed if a power failure lost the last records of a log from which all records had been
    deleted, so that the log now ends before its log start offset. The state of their producers is
    kept: a snapshot for the new beginning is on disk before any file is removed, so that a second
    power failure cannot lose it.
    """
    path = snapshot_path(known.directory, known.log_start_offset)
    found = producers.encode()
    try:
        producers.restore(fs.read_bytes(path))
    except (FileNotFoundError, MalformedSnapshot):
        producers.restore(found)
        write_atomically(fs, path, found)
    for segment in reversed(segments):
        segment.remove()
    first = _first_segment(fs, known)
    fs.sync_directory(known.directory)
    return first


def _matches_clean_shutdown(segments: list[Segment], end_offset: int) -> bool:
    """Return whether the files of a clean shutdown are complete and end at `end_offset`.

    Indexes are only checked for being present and well-formed.
    """
    try:
        return (
            all(segment.indexes_are_sane() for segment in segments)
            and segments[-1].next_offset() == end_offset
        )
    except BatchError:
        return False


def _load_epochs(
    fs: FileSystem, known: KnownLogState, report: Report
) -> tuple[LeaderEpochCache, bool]:
    """Return the epoch cache, and whether a valid checkpoint file was found."""
    epochs = LeaderEpochCache(fs, known.directory)
    try:
        return epochs, epochs.load()
    except (MalformedCheckpoint, ValueError) as error:
        report(f"{known.partition}: rebuilding the leader epoch cache from the log: {error}")
        return epochs, False


def _rebuild_epochs(epochs: LeaderEpochCache, segments: list[Segment]) -> None:
    """Rebuild the epoch cache from all batch headers that can be read."""
    epochs.clear()
    for segment in segments:
        try:
            for header in segment.iter_headers(0, wait=True):
                epochs.assign(header.leader_epoch, header.base_offset)
        except BatchError:
            continue


# ------------------------------------------------------------------------------------- recovery


@dataclass(slots=True)
class _Recovery:
    """The recovery of one log after a crash."""

    fs: FileSystem
    known: KnownLogState
    segments: list[Segment]
    epochs: LeaderEpochCache
    producers: ProducerState
    report: Report
    safe_epochs: LeaderEpochCache
    """The epochs in the checkpoint file, to validate batches below the recovery point."""
    end_offset: int = 0
    producers_offset: int = 0
    """Offset up to which `producers` and the transaction index are complete."""
    snapshots: dict[int, bytes] = field(default_factory=dict)
    """Snapshots of the recovered segments, to be written once the segments are synced."""

    def run(self) -> int:
        """Check everything after the recovery point, and return the new log end offset."""
        first = self._first_unsynced()
        known = self.known
        self._rebuild_damaged_indexes(first)
        start = recovery_start(self.segments[first], known.recovery_point)
        self._restore_producers(first, start.offset)
        self.end_offset = start.offset
        self.safe_epochs.entries = list(self.epochs.entries)
        self.epochs.truncate_from_end(known.recovery_point)  # later ones come from the batches
        self._recover_from(first)
        # A snapshot up to the log start offset may belong to a log that restarts there
        # (`_restart_at_log_start`).
        end_offset = max(self.end_offset, known.log_start_offset)
        remove_snapshots_after(self.fs, known.directory, end_offset)
        self.fs.sync_directory(known.directory)
        return self.end_offset

    def _restore_producers(self, first: int, offset: int) -> None:
        """Restore the producer state at the start of the recovery, or at a later safe snapshot.

        The transaction index is trusted up to that point.
        """
        segment = self.segments[first]
        is_sane = segment.txn_index.is_sane(segment.base_offset)
        if not is_sane:
            segment.txn_index.reset()
        self.producers_offset = restore_producers(
            self.fs,
            self.known.directory,
            self.segments[: first + 1],
            offset if is_sane else segment.base_offset,
            self.producers,
            newest=self.known.recovery_point if is_sane else None,
        )

    def _recover_from(self, number: int) -> None:
        recovered = self._recover(self.segments[number])
        number += 1
        while number < len(self.segments):
            segment = self.segments[number]
            if recovered.cut_bytes:
                self._drop_from(number, "it follows an unfinished write")
            elif segment.base_offset < self.end_offset:
                self._drop(number, "the previous segment contains its offsets")
            elif recovered.is_whole and self._is_cut_off(segment):
                self._drop_from(
                    number, f"the records from offset {self.end_offset} up to it were lost"
                )
            else:
                recovered = self._recover(segment)
                number += 1

    def _is_cut_off(self, segment: Segment) -> bool:
        """Return whether records before a segment were lost, rather than compacted away.

        A power failure can cut a file exactly between two batches. If the segment has a snapshot,
        everything before it had been synced (`FlushJob.run` guarantees this order). If it has none,
        nothing in the segment was ever synced, so nothing in it was ever acknowledged as durable.
        """
        path = snapshot_path(self.known.directory, segment.base_offset)
        end_offset = max(self.end_offset, self.known.log_start_offset)
        return end_offset < segment.base_offset and not self.fs.exists(path)

    def _first_unsynced(self) -> int:
        """Return the index of the last segment that begins before the recovery point.

        If it ends exactly there, its records are safe but its indexes may not be.
        """
        for number in reversed(range(len(self.segments))):
            if self.segments[number].base_offset < self.known.recovery_point:
                return number
        return 0

    def _recover(self, segment: Segment) -> Recovered:
        def on_batch(header: BatchHeader, batch: memoryview) -> None:
            if header.base_offset >= self.known.recovery_point or not self.safe_epochs.entries:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if header.base_offset >= self.producers_offset:
                self._add_aborted(segment, self._update_producers(header, batch))

        if segment.base_offset >= self.producers_offset:
            if self.producers.producers or segment is not self.segments[0]:
                self.snapshots[segment.base_offset] = self.producers.encode()
            segment.txn_index.reset()
        else:
            segment.txn_index.truncate_to(self.producers_offset)
        interval = self.known.config.index_interval_bytes
        later = self.segments[self.segments.index(segment) + 1 :]
        recovered = recover_segment(
            segment,
            self.known.recovery_point,
            later[0].base_offset if later else None,
            interval,
            self._is_known,
            on_batch,
        )
        self.end_offset = recovered.next_offset
        path = segment.file.path
        if recovered.cut_bytes:
            self.report(
                f"{path}: truncated {recovered.cut_bytes} bytes of an unfinished write at offset "
                f"{recovered.next_offset}"
            )
        if recovered.damaged:
            self.report(
                f"{path}: found {recovered.damaged} damaged regions before the recovery point "
                f"{self.known.recovery_point}; reads of them fail"
            )
        if not recovered.is_whole:
            # Offsets up to the recovery point have been assigned, so the log continues from there.
            self.end_offset = self.known.recovery_point
        if recovered.damaged:
            self._continue_after(segment)
        return recovered

    def _is_known(self, header: BatchHeader) -> bool:
        """Return whether the epoch of a batch agrees with the checkpoint.

        The checkpoint is written before the recovery point advances.
        """
        if header.base_offset >= self.known.recovery_point:
            return True
        return self.safe_epochs.epoch_for(header.base_offset) in (header.leader_epoch, NO_EPOCH)

    def _update_producers(self, header: BatchHeader, batch: memoryview) -> CompletedTxn | None:
        try:
            marker = marker_of(batch, header)
        except BatchError:
            return None  # an unknown type of control record
        return self.producers.update(header, header.base_offset, marker)

    def _add_aborted(self, segment: Segment, completed: CompletedTxn | None) -> None:
        if completed is not None and completed.is_aborted:
            segment.txn_index.append(aborted_txn(completed, self.producers))

    def _continue_after(self, segment: Segment) -> None:
        """Start a new segment after a damaged last one, where new records are easier to find."""
        if segment is self.segments[-1] and segment.base_offset < self.end_offset:
            self.segments.append(
                Segment(
                    self.fs,
                    self.known.directory,
                    self.end_offset,
                    new=True,
                    created_ms=self.known.now_ms,
                )
            )

    def _drop_from(self, number: int, reason: str) -> None:
        while number < len(self.segments):
            self._drop(number, reason)

    def _drop(self, number: int, reason: str) -> None:
        segment = self.segments.pop(number)
        self.report(f"{segment.file.path}: removed the segment, because {reason}")
        segment.remove()
        self.fs.remove(snapshot_path(self.known.directory, segment.base_offset))

    def _rebuild_damaged_indexes(self, first: int) -> None:
        """Rebuild missing or malformed indexes of segments before the recovery point.

        They had been synced with their logs, so this is rare. The new ones are synced here, because
        no flush covers these segments again.
        """
        for number, segment in enumerate(self.segments[:first]):
            if segment.indexes_are_sane():
                continue
            if not segment.sparse_indexes_are_sane():
                self.report(
                    f"{segment.offset_index.path}: rebuilt the index, because it did not "
                    "match its log"
                )
                if not rebuild_indexes(segment, self.known.config.index_interval_bytes):
                    self.report(
                        f"{segment.file.path}: the segment is damaged; part of it cannot be read"
                    )
            if not segment.txn_index.is_sane(segment.base_offset):
                self.report(
                    f"{segment.txn_index.path}: rebuilt the index, because it did not match its log"
                )
                self._rebuild_txn_index(number)
            with suppress(OSError):
                segment.sync_indexes()

    def _rebuild_txn_index(self, number: int) -> None:
        segment = self.segments[number]
        segment.txn_index.reset()
        restore_producers(
            self.fs,
            self.known.directory,
            self.segments[: number + 1],
            segment.base_offset,
            self.producers,
        )
        try:
            for header in segment.iter_headers(0, wait=True):
                if header.producer_id != NO_PRODUCER_ID:
                    batch = memoryview(segment.read_batch(header))
                    self._add_aborted(segment, self._update_producers(header, batch))
        except BatchError:
            self.report(f"{segment.file.path}: the segment is damaged; part of it cannot be read")
