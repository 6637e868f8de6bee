"""Opening a log that may have been left by a crash.

After a clean shutdown everything is believed and next to nothing is read. After a crash, only what
lies behind the recovery point can have been touched: those batches are checked one by one, the log
is cut before the first that is damaged, and indexes, epochs and producer state are made to match.
Files that an interrupted compaction or deletion left are finished or removed. Whatever had to be
mended is reported in words."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from ottla.base.config.topic import TopicConfig
from ottla.base.ports import FileSystem, write_atomically
from ottla.base.types import TopicPartition
from ottla.storage.checkpoint import MalformedCheckpoint
from ottla.storage.epoch_cache import NO_EPOCH, LeaderEpochCache
from ottla.storage.log import Log, aborted_txn
from ottla.storage.producer_snapshots import (
    marker_of,
    remove_snapshots_behind,
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
from ottla.wire.records.batch import NO_PRODUCER_ID, BatchHeader
from ottla.wire.records.errors import BatchError


@dataclass(frozen=True, slots=True)
class OpenLog:
    """What is known about a log before it is opened."""

    directory: str
    partition: TopicPartition
    topic_id: bytes
    config: TopicConfig
    is_clean: bool
    recovery_point: int
    log_start_offset: int
    now_ms: int


def open_log(fs: FileSystem, known: OpenLog, report: Report) -> Log:
    """The log, ready for use; it is created where there is none."""
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
    elif known.is_clean and _is_as_left(segments, known.recovery_point):
        is_on_disk, end_offset = True, known.recovery_point
        restore_producers(fs, known.directory, segments, end_offset, producers)
    else:
        safe_epochs = LeaderEpochCache(fs, known.directory)
        recovery = _Recovery(fs, known, segments, epochs, producers, report, safe_epochs)
        end_offset = recovery.run()
        snapshots = recovery.snapshots
    if known.log_start_offset > end_offset:
        report(
            f"{known.partition}: begins again at offset {known.log_start_offset}; the log ended at "
            f"{end_offset}, and everything before its start offset was deleted"
        )
        segments = [_begin_again(fs, known, segments, producers)]
        is_on_disk, end_offset, snapshots = False, known.log_start_offset, {}
        epochs.clear()
    elif not has_epochs and end_offset > segments[0].base_offset:
        _rebuild_epochs(epochs, segments)
    remove_stray_snapshots(fs, known.directory, segments)
    _ = segments[-1].max_timestamp  # known before readers in other threads ask for it
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


def _first_segment(fs: FileSystem, known: OpenLog) -> Segment:
    start = max(known.log_start_offset, 0)
    return Segment(fs, known.directory, start, new=True, created_ms=known.now_ms)


def _begin_again(
    fs: FileSystem, known: OpenLog, segments: list[Segment], producers: ProducerState
) -> Segment:
    """The first segment of a log that goes on at its start offset, because a power cut took the
    last of its deleted records. Their producers are remembered: the snapshot for the new beginning
    is on disk before anything goes, and if the power is cut again, it tells more than what is
    left."""
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


def _is_as_left(segments: list[Segment], end_offset: int) -> bool:
    """Whether a clean shutdown's files are all there, and end where the log ended then. Indexes are
    looked at only for being present and well-formed."""
    try:
        return (
            all(segment.indexes_are_sane() for segment in segments)
            and segments[-1].next_offset() == end_offset
        )
    except BatchError:
        return False


def _load_epochs(fs: FileSystem, known: OpenLog, report: Report) -> tuple[LeaderEpochCache, bool]:
    """(The epochs, whether they were there.)"""
    epochs = LeaderEpochCache(fs, known.directory)
    try:
        return epochs, epochs.load()
    except (MalformedCheckpoint, ValueError) as error:
        report(f"{known.partition}: the leader epochs are read from the log again: {error}")
        return epochs, False


def _rebuild_epochs(epochs: LeaderEpochCache, segments: list[Segment]) -> None:
    """Learn the epochs from all batch headers, as far as these can be read."""
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
    fs: FileSystem
    known: OpenLog
    segments: list[Segment]
    epochs: LeaderEpochCache
    producers: ProducerState
    report: Report
    safe_epochs: LeaderEpochCache
    """As they were on disk; for what is below the recovery point."""
    end_offset: int = 0
    producers_offset: int = 0
    """Batches before it are known to `producers`, and to the index of aborted transactions."""
    snapshots: dict[int, bytes] = field(default_factory=dict)
    """Of the segments that were recovered, to be written when these are synced."""

    def run(self) -> int:
        """Check everything behind the recovery point. Returns where the log ends now."""
        first = self._first_unsafe()
        known = self.known
        self._rebuild_damaged_indexes(first)
        start = recovery_start(self.segments[first], known.recovery_point)
        self._restore_producers(first, start.offset)
        self.end_offset = start.offset
        self.safe_epochs.entries = list(self.epochs.entries)
        self.epochs.truncate_from_end(known.recovery_point)  # later ones are learned again
        self._recover_from(first)
        # One up to the start offset is of a log that begins there again (`_begin_again`).
        end_offset = max(self.end_offset, known.log_start_offset)
        remove_snapshots_behind(self.fs, known.directory, end_offset)
        self.fs.sync_directory(known.directory)
        return self.end_offset

    def _restore_producers(self, first: int, offset: int) -> None:
        """As of where the recovery starts, or later if there is a safe snapshot: then the index of
        aborted transactions is believed up to there."""
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
                self._drop_from(number, "it lies behind an unfinished write")
            elif segment.base_offset < self.end_offset:
                self._drop(number, "the segment before it holds these offsets")
            elif recovered.is_whole and self._is_cut_off(segment):
                self._drop_from(number, f"records {self.end_offset} on before it were lost")
            else:
                recovered = self._recover(segment)
                number += 1

    def _is_cut_off(self, segment: Segment) -> bool:
        """Whether the records before a segment were lost, rather than compacted away: a power cut
        can cut a file just between two batches. If there is a snapshot for the segment, everything
        before it had been synced (`FlushJob.run` goes in that order); if there is none, nothing in
        the segment has ever been, so that no one was promised anything of it."""
        path = snapshot_path(self.known.directory, segment.base_offset)
        end_offset = max(self.end_offset, self.known.log_start_offset)
        return end_offset < segment.base_offset and not self.fs.exists(path)

    def _first_unsafe(self) -> int:
        """The segment that ends at the recovery point or behind it: the last that begins before.
        Where one ends just there, its records are safe, but its indexes need not be."""
        for number in reversed(range(len(self.segments))):
            if self.segments[number].base_offset < self.known.recovery_point:
                return number
        return 0

    def _recover(self, segment: Segment) -> Recovered:
        def on_batch(header: BatchHeader, batch: memoryview) -> None:
            if header.base_offset >= self.known.recovery_point or not self.safe_epochs.entries:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if header.base_offset >= self.producers_offset:
                self._note_aborted(segment, self._update_producers(header, batch))

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
                f"{path}: cut {recovered.cut_bytes} bytes of an unfinished write "
                f"at offset {recovered.next_offset}"
            )
        if recovered.damaged:
            self.report(
                f"{path}: {recovered.damaged} damaged places before offset "
                f"{self.known.recovery_point}, which was on disk; reads of them will be refused"
            )
        if not recovered.is_whole:
            # Offsets up to the recovery point were given away, so the log goes on from there.
            self.end_offset = self.known.recovery_point
        if recovered.damaged:
            self._continue_behind(segment)
        return recovered

    def _is_known(self, header: BatchHeader) -> bool:
        """Whether the epoch of a batch agrees with the checkpoint, which is written before the
        recovery point moves on."""
        if header.base_offset >= self.known.recovery_point:
            return True
        return self.safe_epochs.epoch_for(header.base_offset) in (header.leader_epoch, NO_EPOCH)

    def _update_producers(self, header: BatchHeader, batch: memoryview) -> CompletedTxn | None:
        try:
            marker = marker_of(batch, header)
        except BatchError:
            return None  # not a marker that we know
        return self.producers.update(header, header.base_offset, marker)

    def _note_aborted(self, segment: Segment, completed: CompletedTxn | None) -> None:
        if completed is not None and completed.is_aborted:
            segment.txn_index.append(aborted_txn(completed, self.producers))

    def _continue_behind(self, segment: Segment) -> None:
        """A segment with damaged places is not appended to: new records would be harder to find."""
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
        self.report(f"{segment.file.path}: removed, {reason}")
        segment.remove()
        self.fs.remove(snapshot_path(self.known.directory, segment.base_offset))

    def _rebuild_damaged_indexes(self, first: int) -> None:
        """Indexes before the recovery point were synced with their log; one that is missing or
        malformed all the same is built again, and synced: no flush comes back to it."""
        for number, segment in enumerate(self.segments[:first]):
            if segment.indexes_are_sane():
                continue
            if not segment.sparse_indexes_are_sane():
                self.report(f"{segment.offset_index.path}: rebuilt, it did not match its log")
                if not rebuild_indexes(segment, self.known.config.index_interval_bytes):
                    self.report(f"{segment.file.path}: damaged; a part of it cannot be read")
            if not segment.txn_index.is_sane(segment.base_offset):
                self.report(f"{segment.txn_index.path}: rebuilt, it did not match its log")
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
                    self._note_aborted(segment, self._update_producers(header, batch))
        except BatchError:
            self.report(f"{segment.file.path}: damaged; a part of it cannot be read")
