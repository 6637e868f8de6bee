"""Flushing a log to disk, outside the thread that appends to it.

`Log.begin_flush` determines what there is to do, `FlushJob.run` does it in any thread, and
`Log.flushed` or `Log.flush_failed` records the outcome. A log has at most one job at a time. A job
syncs all log files first and writes producer snapshots second. Recovery relies on this order: if a
segment has a snapshot, everything before the segment has been synced.

A truncation waits for a running job, and turns a job that has not run yet into a no-op, because its
snapshots and its offset describe a log that no longer exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from ottla.base.ports import FileSystem, write_atomically
from ottla.storage.epoch_cache import LeaderEpochCache
from ottla.storage.producer_snapshots import snapshot_path
from ottla.storage.segment import Segment


class SyncFailed(OSError):
    """A log file could not be synced, so its contents on disk are unknown.

    The kernel may have dropped the pages that it could not write, and a second sync would succeed
    without them.
    """


@dataclass(slots=True)
class FlushGate:
    """State shared by a log, its flush jobs and readers in other threads."""

    lock: Lock = field(default_factory=Lock)
    truncations: int = 0
    is_truncating: bool = False

    @contextmanager
    def truncation(self) -> Iterator[None]:
        """Hold the lock, and mark a truncation as in progress, for the duration of the context."""
        with self.lock:
            self.truncations += 1
            self.is_truncating = True
            try:
                yield
            finally:
                self.is_truncating = False


@dataclass(slots=True)
class FlushJob:
    """Work that makes everything below `offset` durable."""

    offset: int
    fs: FileSystem
    directory: str
    sealed: list[Segment]
    active: Segment
    snapshots: dict[int, bytes]
    epochs: LeaderEpochCache
    sync_directory: bool
    sync_active_indexes: bool
    messages: int
    gate: FlushGate
    truncations: int

    @property
    def is_outdated(self) -> bool:
        """Whether the log has been truncated since the job was created."""
        return self.truncations != self.gate.truncations

    def run(self) -> None:
        """Sync the files, unless the job was overtaken by a truncation.

        Raises:
            SyncFailed: A log file could not be synced. Only a restart resolves this.
            OSError: Something else failed. A later flush may succeed.
        """
        with self.gate.lock:
            if not self.is_outdated:
                self._run()

    def _run(self) -> None:
        for segment in [*self.sealed, self.active]:
            if not segment.is_detached:
                self._sync_log(segment)
        for segment in self.sealed:
            if not segment.is_detached:
                segment.flush_indexes()
                self._sync_indexes(segment)
        if not self.active.is_detached:
            self.active.txn_index.sync()
            if self.sync_active_indexes:
                self._sync_indexes(self.active)
        for offset, snapshot in self.snapshots.items():
            write_atomically(self.fs, snapshot_path(self.directory, offset), snapshot)
        if self.epochs.dirty:
            self.epochs.flush()
        if self.sync_directory:
            self.fs.sync_directory(self.directory)

    @staticmethod
    def _sync_log(segment: Segment) -> None:
        try:
            segment.sync_log()
        except OSError as error:
            raise SyncFailed(*error.args) from error

    @staticmethod
    def _sync_indexes(segment: Segment) -> None:
        try:
            segment.sync_indexes()
        except FileNotFoundError:
            if not segment.is_detached:
                raise
