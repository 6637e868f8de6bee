"""Making a log survive a power cut, outside the thread that appends to it.

`Log.begin_flush` says what there is to do, `FlushJob.run` does it in any thread, and `Log.flushed`
or `Log.flush_failed` takes note; one job of a log at a time. What is synced comes in an order that
recovery relies on: all log files first, then the snapshots. So a segment for which there is a
snapshot has nothing unsynced before it.

A truncation waits for a job that is running, and makes one that has not run yet do nothing: its
snapshots, and how far it would have synced, are of a log that is no longer."""

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
    """A log file could not be synced. The kernel may have dropped what it could not write, so that
    a second sync would succeed without it: nobody knows what is on disk."""


@dataclass(slots=True)
class FlushGate:
    """Between a log, its flush jobs, and readers in other threads."""

    lock: Lock = field(default_factory=Lock)
    truncations: int = 0
    is_truncating: bool = False

    @contextmanager
    def truncation(self) -> Iterator[None]:
        with self.lock:
            self.truncations += 1
            self.is_truncating = True
            try:
                yield
            finally:
                self.is_truncating = False


@dataclass(slots=True)
class FlushJob:
    """What must reach the disk so that everything below `offset` is safe."""

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
    def is_overtaken(self) -> bool:
        """Whether the log has been truncated since the job was begun."""
        return self.truncations != self.gate.truncations

    def run(self) -> None:
        """Raises OSError. Unless it is SyncFailed, a later flush may well succeed."""
        with self.gate.lock:
            if not self.is_overtaken:
                self._run()

    def _run(self) -> None:
        for segment in [*self.sealed, self.active]:
            if not segment.is_leaving:
                self._sync_log(segment)
        for segment in self.sealed:
            if not segment.is_leaving:
                segment.flush_indexes()
                self._sync_indexes(segment)
        if not self.active.is_leaving:
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
            if not segment.is_leaving:
                raise
