"""Opening a log that may have been left by a crash.

After a clean shutdown everything is believed and next to nothing is read. After a crash, only what
lies behind the recovery point can have been touched: those batches are checked one by one, the log
is cut before the first that is damaged, and indexes, epochs and producer state are made to match.
Files that an interrupted compaction or deletion left are finished or removed. Whatever had to be
mended is reported in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.base.config.topic import TopicConfig
from ottla.base.ports import FileSystem
from ottla.base.types import TopicPartition
from ottla.storage.checkpoint import MalformedCheckpoint
from ottla.storage.epoch_cache import LeaderEpochCache
from ottla.storage.log import Log, aborted_txn
from ottla.storage.producer_snapshots import marker_of, restore_producers, snapshot_path
from ottla.storage.producer_state import ProducerState
from ottla.storage.segment import Recovered, Segment, segment_path
from ottla.wire.records.batch import BatchHeader
from ottla.wire.records.errors import BatchError

Report = Callable[[str], None]
_INDEX_EXTENSIONS = ("index", "timeindex", "txnindex")


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
    _finish_interrupted_work(fs, known.directory, report)
    segments = _open_segments(fs, known)
    epochs = _load_epochs(fs, known, report)
    producers = ProducerState()
    if not segments:
        segments = [_first_segment(fs, known)]
        end_offset = segments[0].base_offset
    elif known.is_clean and _all_sane(segments):
        end_offset = segments[-1].next_offset()
        restore_producers(fs, known.directory, segments, end_offset, producers)
    else:
        recovery = _Recovery(fs, known, segments, epochs, producers, report)
        end_offset = recovery.run()
    start_offset = min(max(known.log_start_offset, segments[0].base_offset), end_offset)
    epochs.truncate_from_end(end_offset)
    return Log(
        fs,
        known.directory,
        known.partition,
        known.topic_id,
        known.config,
        segments,
        log_start_offset=start_offset,
        log_end_offset=end_offset,
        recovery_point=end_offset if known.is_clean else min(known.recovery_point, end_offset),
        producers=producers,
        epochs=epochs,
        now_ms=known.now_ms,
    )


def _first_segment(fs: FileSystem, known: OpenLog) -> Segment:
    start = max(known.log_start_offset, 0)
    return Segment(fs, known.directory, start, new=True, created_ms=known.now_ms)


def _all_sane(segments: list[Segment]) -> bool:
    """Whether a clean shutdown's files are all there. The indexes of closed segments are checked
    when they are loaded; here only for being present and well-formed."""
    try:
        return all(segment.indexes_are_sane() for segment in segments) and bool(
            segments[-1].next_offset() + 1
        )
    except BatchError:
        return False


def _load_epochs(fs: FileSystem, known: OpenLog, report: Report) -> LeaderEpochCache:
    epochs = LeaderEpochCache(fs, known.directory)
    try:
        epochs.load()
    except (MalformedCheckpoint, ValueError) as error:
        report(f"{known.partition}: the leader epochs are read from the log again: {error}")
    return epochs


# ---------------------------------------------------------------------------------------- files


def _finish_interrupted_work(fs: FileSystem, directory: str, report: Report) -> None:
    names = fs.list(directory)
    for name in names:
        if name.endswith((".deleted", ".cleaned", ".tmp")):
            fs.remove(f"{directory}/{name}")
    swaps = sorted(name for name in names if name.endswith(".log.swap"))
    for name in swaps:
        _finish_swap(fs, directory, int(name.split(".")[0]))
        report(f"{directory}: finished an interrupted compaction ({name})")
    for name in fs.list(directory):
        if name.endswith(".swap"):
            fs.remove(f"{directory}/{name}")


def _finish_swap(fs: FileSystem, directory: str, base_offset: int) -> None:
    """The compacted segment is whole: what it replaces goes, and it takes the place."""
    swap = Segment(fs, directory, base_offset, suffix=".swap")
    end_offset = max((h.next_offset for h in swap.iter_headers(0, wait=True)), default=base_offset)
    swap.close()
    for old in _base_offsets(fs, directory):
        if base_offset <= old < max(end_offset, base_offset + 1):
            for extension in ("log", *_INDEX_EXTENSIONS):
                fs.remove(segment_path(directory, old, extension))
    for extension in (*_INDEX_EXTENSIONS, "log"):
        path = segment_path(directory, base_offset, extension)
        if fs.exists(path + ".swap"):
            fs.rename(path + ".swap", path)
    fs.sync_directory(directory)


def _base_offsets(fs: FileSystem, directory: str) -> list[int]:
    names = (name.split(".") for name in fs.list(directory))
    return sorted(
        int(parts[0])
        for parts in names
        if len(parts) == 2 and parts[1] == "log" and parts[0].isdigit()
    )


def _open_segments(fs: FileSystem, known: OpenLog) -> list[Segment]:
    bases = _base_offsets(fs, known.directory)
    expected = {f"{base:020d}" for base in bases}
    for name in fs.list(known.directory):
        stem, _, extension = name.partition(".")
        if extension in _INDEX_EXTENSIONS and stem not in expected:
            fs.remove(f"{known.directory}/{name}")
    segments = [Segment(fs, known.directory, base) for base in bases]
    for segment in segments[-1:]:
        segment.created_ms = fs.modified_ms(segment.file.path)
    return segments


# ------------------------------------------------------------------------------------- recovery


@dataclass(slots=True)
class _Recovery:
    fs: FileSystem
    known: OpenLog
    segments: list[Segment]
    epochs: LeaderEpochCache
    producers: ProducerState
    report: Report
    end_offset: int = 0

    def run(self) -> int:
        """Check everything behind the recovery point. Returns where the log ends now."""
        first = self._first_unsafe()
        known = self.known
        start = self.segments[first].recovery_start(known.recovery_point)
        restore_producers(
            self.fs, known.directory, self.segments[: first + 1], start.offset, self.producers
        )
        self.end_offset = start.offset
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            if number > first and segment.base_offset < self.end_offset:
                self._drop_from(number)
                break
            if self._recover(segment).cut_bytes:
                self._drop_from(number + 1)
                break
        self._rebuild_damaged_indexes(first)
        self.fs.sync_directory(known.directory)
        return self.end_offset

    def _first_unsafe(self) -> int:
        """The segment that holds the recovery point: the last that begins at or before it."""
        for number in reversed(range(len(self.segments))):
            if self.segments[number].base_offset <= self.known.recovery_point:
                return number
        return 0

    def _recover(self, segment: Segment) -> Recovered:
        def on_batch(header: BatchHeader, batch: memoryview) -> None:
            self.epochs.assign(header.leader_epoch, header.base_offset)
            completed = self.producers.update(header, header.base_offset, marker_of(batch, header))
            if completed is not None and completed.is_aborted:
                segment.txn_index.append(aborted_txn(completed, self.producers))

        interval = self.known.config.index_interval_bytes
        recovered = segment.recover(self.known.recovery_point, interval, on_batch)
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
            self._continue_behind(segment)
        return recovered

    def _continue_behind(self, segment: Segment) -> None:
        """The rest of a segment cannot be made out. Offsets up to the recovery point were given
        away, so the log goes on from there, in a file of its own."""
        self.end_offset = self.known.recovery_point
        if segment is self.segments[-1]:
            self.segments.append(
                Segment(
                    self.fs,
                    self.known.directory,
                    self.end_offset,
                    new=True,
                    created_ms=self.known.now_ms,
                )
            )

    def _drop_from(self, number: int) -> None:
        for segment in self.segments[number:]:
            self.report(f"{segment.file.path}: removed, it lies behind a damaged batch")
            segment.remove()
            self.fs.remove(snapshot_path(self.known.directory, segment.base_offset))
        del self.segments[number:]

    def _rebuild_damaged_indexes(self, first: int) -> None:
        """Indexes before the recovery point were synced with their log; one that is missing or
        malformed all the same is built again."""
        for segment in self.segments[:first]:
            if segment.indexes_are_sane():
                continue
            self.report(f"{segment.offset_index.path}: rebuilt, it did not match its log")
            rebuild_indexes(segment, self.known.config.index_interval_bytes)


def rebuild_indexes(segment: Segment, index_interval_bytes: int) -> None:
    """Build a closed segment's indexes from its batch headers."""
    segment.reset_indexes(segment.base_offset)
    since_entry, max_timestamp, offset_of_max = 0, -1, segment.base_offset
    for header in segment.iter_headers(0, wait=True):
        if header.max_timestamp > max_timestamp:
            max_timestamp, offset_of_max = header.max_timestamp, header.last_offset
        if since_entry > index_interval_bytes:
            segment.offset_index.append(header.last_offset, header.position)
            segment.time_index.append(max_timestamp, offset_of_max)
            since_entry = 0
        since_entry += header.size
    if max_timestamp >= 0:
        segment.time_index.append(max_timestamp, offset_of_max)
    segment.flush_indexes()
