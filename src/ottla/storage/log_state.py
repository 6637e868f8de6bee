"""The state of a partition's log, shared by the modules that change it.

Invariants
- Segments are ordered by base offset and cover the whole log. Only the last one is appended to.
- `log_start_offset <= log_end_offset`. The last batch may end before the log end offset, if a
  truncation ended inside a gap that compaction left (`written_end`).
- Everything below `recovery_point` has been synced to disk.
- The producer snapshot of a new segment waits in `pending_snapshots`, or is being written by
  `flush_job`, until it is on disk.
- A reader in another thread notices every replacement of the list of segments (`use_segments`).

Each operation on this state has a module: appends are in log.py, flushes in log_flush.py, removal
of old segments in retention.py, replacement of compacted ones in compaction_swap.py, and truncation
in truncation.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from ottla.base.config.topic import TopicConfig
from ottla.base.ports import FileSystem
from ottla.base.types import TopicPartition
from ottla.storage.epoch_cache import LeaderEpochCache
from ottla.storage.flush import FlushGate, FlushJob
from ottla.storage.index import TIME_ENTRY_SIZE
from ottla.storage.log_reader import LogReader
from ottla.storage.producer_state import ProducerState
from ottla.storage.segment import MAX_SEGMENT_BYTES, Segment, segment_path

OnWriteError: TypeAlias = "Callable[[LogState, OSError, int], None]"


class LogState:
    """The state of one log, and the steps that several operations have in common."""

    __slots__ = (
        "_config",
        "_max_index_entries",
        "_max_segment_bytes",
        "_max_segment_ms",
        "clean_end",
        "directory",
        "directory_changed",
        "epochs",
        "flush_job",
        "fs",
        "gap",
        "gate",
        "is_truncating",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "on_write_error",
        "partition",
        "pending_snapshots",
        "producers",
        "reader",
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
            fs: File system that holds the log.
            directory: Directory of the log.
            partition: Topic and number of the partition.
            topic_id: ID of the topic.
            config: Configuration of the topic.
            segments: Segments of the log, in order; at least one.
            log_start_offset: First offset that consumers may read.
            log_end_offset: Offset of the next record.
            recovery_point: Offset below which everything has been synced.
            producers: State of the producers at the end of the log.
            epochs: Leader epochs of the log.
            now_ms: Current time, taken as the time of the last flush.
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
        self.pending_snapshots: dict[int, bytes] = snapshots or {}
        """Producer snapshots to write with the next flush, by offset."""
        self.directory_changed = not is_on_disk
        """Whether files were created, renamed or removed since the last flush."""
        self.clean_end = log_end_offset if is_on_disk else None
        """Log end offset at the last clean shutdown; None after a crash or a truncation."""
        self.gap = (log_end_offset, log_end_offset)
        """(Offset of the last truncation, end of the last batch before it).

        They differ if a follower truncated its log to an offset inside a gap that compaction left.
        """
        self.gate = FlushGate()
        self.is_truncating = False
        """Set while another thread truncates the log; nothing else may change it then."""
        self.on_write_error: OnWriteError = _ignore_write_error
        """Called with each error of an append and the size of the batch that was to be written."""
        self.flush_job: FlushJob | None = None
        self.reader = LogReader(self)

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

    @property
    def written_end(self) -> int:
        """First offset after the last batch, which is below the log end offset before a gap."""
        truncated_to, written_end = self.gap
        return written_end if self.log_end_offset == truncated_to else self.log_end_offset

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Start a new segment at the end of the log, and take a producer snapshot for it."""
        if base_offset is None:
            base_offset = self.written_end
        old = self.segments[-1]
        if old.base_offset == base_offset and not old.size:
            return old
        old.seal()
        segment = self.new_segment(base_offset, now_ms)
        if not old.size:
            self.forget_segments([old])
            old.remove()
        self.segments.append(segment)
        self.pending_snapshots[base_offset] = self.producers.encode()
        self.directory_changed = True
        return segment

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Create a segment. Leave no file if that fails, since the log may grow past its offset."""
        try:
            return Segment(self.fs, self.directory, base_offset, new=True, created_ms=now_ms)
        except OSError:
            with suppress(OSError):
                self.fs.remove(segment_path(self.directory, base_offset, "log"))
            raise

    def unwritten_snapshots(self) -> dict[int, bytes]:
        """Return the snapshots that are waiting for a flush or being written by one."""
        return {**(self.flush_job.snapshots if self.flush_job else {}), **self.pending_snapshots}

    def forget_segments(self, removed: Sequence[Segment]) -> None:
        gone = {segment.base_offset for segment in removed}
        self.use_segments([s for s in self.segments if s.base_offset not in gone])

    def use_segments(self, segments: list[Segment]) -> None:
        """Replace the list of segments so that concurrent readers notice.

        Clearing the cursors before and after the change ensures that a reader that combines old
        cursors with new segments, or the reverse, finds other cursors than it started with and
        starts over.
        """
        self.reader.forget()
        self.segments = segments
        self.reader.forget()


def _ignore_write_error(log: LogState, error: OSError, needed_bytes: int) -> None:
    """Do nothing; `append` raises the error as well."""
