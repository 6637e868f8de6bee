"""Data directories that refuse writes: detected, logged, and probed until they recover.

    a write fails    the directory gets a `write_failure`, an ERROR is logged, producers get
                     KAFKA_STORAGE_ERROR; `on_rejected` lets replicas elsewhere take over
    while it lasts   every further write is attempted; the ERROR is repeated every `REPEAT_MS`
    a probe succeeds an INFO is logged, the failure is cleared, `on_recovered` is called

The probe (`storage.write_failure.probe`) runs once a second, and only while a directory fails."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from ottla.base.ports import Clock, FileSystem
from ottla.base.types import TopicPartition
from ottla.storage.log import Log
from ottla.storage.log_dirs import LogDirectory
from ottla.storage.log_state import LogState
from ottla.storage.write_failure import WriteFailure, describe_write_error, probe

logger = logging.getLogger(__name__)

REPEAT_MS = 30_000
"""Minimum interval between ERROR lines about the same directory."""


class DiskWatch:
    """The data directories that refuse writes, and the partitions affected."""

    def __init__(
        self,
        fs: FileSystem,
        directories: Sequence[LogDirectory],
        clock: Clock,
        run_blocking: Callable[[Callable[[], bool]], Awaitable[bool]],
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._clock = clock
        self._run_blocking = run_blocking
        self._logged_ms: dict[str, int] = {}
        """Time at which the ERROR of each directory was last logged."""
        self._announced: set[str] = set()
        """Directories whose current failure was logged, so that their recovery is logged too."""
        self.rejecting: set[TopicPartition] = set()
        """Partitions that could not be appended to and whose directory still refuses writes."""
        self.on_rejected: Callable[[TopicPartition], object] = _nothing
        """Called with a partition whenever records could not be appended to it."""
        self.on_recovered: Callable[[Collection[TopicPartition]], object] = _nothing
        """Called with the partitions that refused writes when their directory has recovered."""

    # -------------------------------------------------------------------------------- failures

    def append_failed(self, log: LogState, error: OSError, needed_bytes: int) -> None:
        """Record that an append to a log failed."""
        failure = self.write_failed(log.data_directory, error, needed_bytes)
        if failure is not None:
            failure.partitions.add(log.partition)
            self.rejecting.add(log.partition)
            self.on_rejected(log.partition)

    def sync_failed(self, log: Log, error: OSError, *, needs_restart: bool) -> None:
        """Record that a log, its indexes or its snapshots could not be synced."""
        failure = self.write_failed(log.data_directory, error)
        if failure is not None and needs_restart:
            failure.needs_restart = True

    def write_failed(self, path: str, error: OSError, needed_bytes: int = 0) -> WriteFailure | None:
        """Record a failed write below a data directory.

        Args:
            path: The file or directory that could not be written.
            error: The error of the write.
            needed_bytes: Size of the write, if known.

        Returns:
            The failure state of the directory, or None if `path` is in no data directory.
        """
        directory = self._directory_of(path)
        if directory is None:
            return None
        failure = directory.write_failure
        if failure is None:
            failure = WriteFailure(error, self._clock.time_ms(), needed_bytes)
            directory.write_failure = failure
            self._log_failure(directory, failure)
        else:
            failure.add(error, needed_bytes)
        return failure

    def _directory_of(self, path: str) -> LogDirectory | None:
        for directory in self._directories:
            if path == directory.path or path.startswith(f"{directory.path}/"):
                return directory
        return None

    def _log_failure(self, directory: LogDirectory, failure: WriteFailure) -> None:
        now_ms, path = self._clock.time_ms(), directory.path
        if now_ms - self._logged_ms.get(path, -REPEAT_MS) < REPEAT_MS:
            return
        self._logged_ms[path] = now_ms
        self._announced.add(path)
        count = failure.failed_writes
        logger.error(
            "%s rejects writes: %s%s. Clients receive KAFKA_STORAGE_ERROR, reads continue, and "
            "other in-sync replicas take over leadership if there are any. %s",
            path,
            describe_write_error(self._fs, path, failure.error, failure.needed_bytes),
            f" ({count} writes failed so far)" if count > 1 else "",
            "Restart the broker after repairing the disk."
            if failure.needs_restart
            else "The broker accepts writes again, without a restart, as soon as they succeed.",
        )

    # -------------------------------------------------------------------------------- recovery

    async def probe(self) -> None:
        """Probe the directories that refuse writes, and report those that have recovered."""
        for directory in self._directories:
            failure = directory.write_failure
            if failure is None:
                continue
            if await self._run_blocking(partial(probe, self._fs, directory.path, failure)):
                self._recovered(directory, failure)
            else:
                self._log_failure(directory, failure)

    def _recovered(self, directory: LogDirectory, failure: WriteFailure) -> None:
        directory.write_failure = None
        self.rejecting -= failure.partitions
        if directory.path in self._announced:
            self._announced.discard(directory.path)
            logger.info(
                "%s accepts writes again after %.0f s; %d writes had failed",
                directory.path,
                max(self._clock.time_ms() - failure.since_ms, 0) / 1000,
                failure.failed_writes,
            )
        self.on_recovered(failure.partitions)


def _nothing(_: object) -> None:
    """Ignore the event; a standalone broker has no other replicas."""
