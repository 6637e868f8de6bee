"""The logs in this broker's data directories: found, opened, created and deleted.

`open` does the disk I/O and may run in a thread; the broker registers the result on the event loop
with `opened`. A log directory without a topic (the topic was deleted while the broker was down, or
another topic has its name now) is renamed to `-stray`. It is never served and never removed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import UserError
from ottla.base.ports import Clock, FileSystem, RunBlocking
from ottla.base.types import TopicPartition
from ottla.broker.disk_watch import DiskWatch
from ottla.storage.log import Log
from ottla.storage.log_dirs import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    FoundLog,
    LogDirectory,
    checkpoint_offsets,
)
from ottla.storage.recovery import KnownLogState, open_log

logger = logging.getLogger(__name__)


class WantedLog(NamedTuple):
    """A log that should be open on this broker."""

    partition: TopicPartition
    topic_id: bytes
    config: TopicConfig


class Logs:
    """All logs of this broker, and the checkpoints of their directories."""

    def __init__(
        self,
        fs: FileSystem,
        paths: Sequence[str],
        clock: Clock,
        run_blocking: RunBlocking,
    ) -> None:
        self.fs = fs
        self.directories = [LogDirectory(fs, path) for path in paths]
        self.disk_watch = DiskWatch(fs, self.directories, clock, run_blocking)
        self.open_logs: dict[TopicPartition, Log] = {}
        self.unopened: dict[tuple[str, int], WantedLog] = {}
        self._clock = clock
        self._run_blocking = run_blocking
        self._found: dict[TopicPartition, tuple[LogDirectory, FoundLog]] = {}
        self._open_errors: list[OSError] = []
        """Errors of `open`, which may run in a thread; `opened` reports them to the disk watch."""
        self._checkpointing = asyncio.Lock()
        self._log_counts: Counter[str] = Counter()
        self.high_watermark: Callable[[TopicPartition], int | None] | None = None
        """Function that returns a partition's high watermark; set in a cluster, for checkpoints."""
        self._is_registered = False

    # ----------------------------------------------------------------------------------- start

    def begin(self) -> None:
        """Read the state that the previous run left in every directory.

        Raises:
            UserError: Two directories contain the same partition.
        """
        for directory in self.directories:
            for problem in directory.begin():
                logger.warning("%s", problem)
            for found in directory.find_logs():
                if found.partition in self._found:
                    other = self._found[found.partition][1]
                    raise UserError(
                        f"{found.partition} is in {other.path} and in {found.path}; "
                        "move one of them away and start again."
                    )
                self._found[found.partition] = (directory, found)

    @property
    def was_clean(self) -> bool:
        return all(directory.was_clean for directory in self.directories)

    @property
    def has_all_writes(self) -> bool:
        """Whether everything that the previous run wrote is still there, synced or not."""
        return all(directory.has_all_writes for directory in self.directories)

    def mark_registered(self) -> None:
        """Record that the cluster knows this incarnation and what the previous one may have lost.
        Only from now on may the directories state that nothing was lost since."""
        for directory in self.directories:
            directory.write_boot_id()
        self._is_registered = True

    @property
    def found(self) -> list[FoundLog]:
        """Logs on disk that have not been opened yet."""
        return [found for _, found in self._found.values()]

    def rename_strays(self) -> None:
        for directory, found in list(self._found.values()):
            if found.partition not in self.unopened:
                self._rename_stray(directory, found)
                del self._found[found.partition]

    def _rename_stray(self, directory: LogDirectory, found: FoundLog) -> None:
        target = directory.rename_log_directory(found.path, STRAY_SUFFIX)
        logger.warning("%s does not belong to any topic; renamed it to %s", found.path, target)

    # ----------------------------------------------------------------------------------- opening

    def open(self, wanted: Iterable[WantedLog]) -> list[Log]:
        """Open or create logs, possibly in a thread.

        Args:
            wanted: The logs to open.

        Returns:
            The logs that could be opened; pass them to `opened` on the event loop. A log that
            failed with an I/O error is missing here and listed in `unopened`.
        """
        touched: dict[str, LogDirectory] = {}
        logs = []
        for log in wanted:
            try:
                directory, path, is_new = self._choose_directory(log)
                if is_new:
                    touched[directory.path] = directory
                logs.append(self._open_one(log, directory, path, is_new))
            except OSError as error:
                if log.partition not in self.unopened:
                    logger.error("Could not open %s, retrying: %s", log.partition, error)
                self.unopened[log.partition] = log
                self._open_errors.append(error)
            else:
                self.unopened.pop(log.partition, None)
        for directory in touched.values():
            directory.sync()
        return logs

    def register(self, logs: Iterable[Log]) -> None:
        """Register logs that `open` returned, and report its errors. Call on the event loop."""
        for log in logs:
            log.on_write_error = self.disk_watch.append_failed
            self.open_logs[log.partition] = log
            self._found.pop(log.partition, None)
        while self._open_errors:
            error = self._open_errors.pop()
            self.disk_watch.write_failed(str(error.filename), error)

    def _choose_directory(self, wanted: WantedLog) -> tuple[LogDirectory, str, bool]:
        known = self._found.get(wanted.partition)
        if known is not None:
            directory, found = known
            if found.topic_id in (None, wanted.topic_id):
                self._log_counts[directory.path] += 1
                if found.topic_id is None:
                    directory.create_log_directory(wanted.partition, wanted.topic_id)
                return directory, found.path, False
            self._rename_stray(directory, found)
            del self._found[wanted.partition]
        directory = min(self.directories, key=lambda each: self._log_counts[each.path])
        self._log_counts[directory.path] += 1
        return directory, directory.create_log_directory(wanted.partition, wanted.topic_id), True

    def _open_one(self, wanted: WantedLog, directory: LogDirectory, path: str, is_new: bool) -> Log:
        partition = wanted.partition
        known = KnownLogState(
            path,
            partition,
            wanted.topic_id,
            wanted.config,
            is_new or directory.was_clean,
            0 if is_new else directory.recovery_points.get(partition, 0),
            0 if is_new else directory.log_start_offsets.get(partition, 0),
            self._clock.time_ms(),
        )
        return open_log(self.fs, known, _report)

    # ------------------------------------------------------------------- deletion, checkpoints

    def delete(self, log: Log) -> str:
        """Close a log and mark its directory as deleted. Returns the directory, which may be
        removed once no reader uses it."""
        self.open_logs.pop(log.partition, None)
        directory = self._directory_of(log)
        self._log_counts[directory.path] -= 1
        target = directory.rename_log_directory(log.directory, DELETE_SUFFIX)
        for segment in log.segments:
            segment.is_removed = True
            segment.close()
        return target

    def _directory_of(self, log: Log) -> LogDirectory:
        return next(each for each in self.directories if each.path == log.data_directory)

    def unfinished_deletions(self) -> list[str]:
        return [path for directory in self.directories for path in directory.unfinished_deletions()]

    def high_watermark_of(self, log: Log) -> int:
        """Return the checkpointed high watermark, limited to the log's offsets. Records above it
        must be replicated again before they are committed."""
        known = self._directory_of(log).high_watermarks.get(log.partition, 0)
        return max(log.log_start_offset, min(known, log.log_end_offset))

    async def write_high_watermarks(self) -> None:
        """Write the high watermark checkpoint of every directory. If one cannot be written, the
        previous one remains; its offsets are lower, which is safe."""
        if self.high_watermark is None:
            return
        writes: list[tuple[LogDirectory, Callable[[], None]]] = []
        for directory in self.directories:
            offsets = {
                log.partition: offset
                for log in self._logs_in(directory)
                if (offset := self.high_watermark(log.partition)) is not None
            }
            writes.append((directory, partial(directory.write_high_watermarks, offsets)))
        async with self._checkpointing:
            await self._write(writes)

    async def write_checkpoints(self) -> None:
        """Write the recovery point and log start offset checkpoints of every directory. Raises
        OSError if one could not be written; the others are written all the same."""
        async with self._checkpointing:
            writes: list[tuple[LogDirectory, Callable[[], None]]] = [
                (directory, partial(directory.write_checkpoints, *self._offsets(directory)))
                for directory in self.directories
            ]
            error = await self._write(writes)
        if error is not None:
            raise error

    async def _write(
        self, writes: Sequence[tuple[LogDirectory, Callable[[], None]]]
    ) -> OSError | None:
        """Run all writes in a thread and report failures to the disk watch. Returns the first
        error."""

        def write_all() -> list[tuple[LogDirectory, OSError]]:
            failed = []
            for directory, write in writes:
                try:
                    write()
                except OSError as error:
                    failed.append((directory, error))
            return failed

        failed = await self._run_blocking(write_all)
        for directory, error in failed:
            self.disk_watch.write_failed(directory.path, error)
        return failed[0][1] if failed else None

    def _logs_in(self, directory: LogDirectory) -> list[Log]:
        return [log for log in self.open_logs.values() if log.data_directory == directory.path]

    def close(self, offline: Container[tuple[str, int]] = ()) -> None:
        """Close every log, so that the next start has nothing to recover.

        A log that is offline or cannot be closed leaves its directory marked unclean; the next
        start recovers the logs there from their recovery points. So does a run that ends before
        `mark_registered` if the run before it was unclean."""
        for directory in self.directories:
            try:
                self._close(directory, self._logs_in(directory), offline)
            except OSError as error:
                logger.error("Could not close %s: %s", directory.path, error)

    def _close(
        self, directory: LogDirectory, logs: list[Log], offline: Container[tuple[str, int]]
    ) -> None:
        written = [log for log in logs if log.partition not in offline and _write_out(log)]
        self.fs.sync_below(directory.path)
        for log in written:
            log.synced()
        self.fs.sync_below(directory.path)
        directory.write_checkpoints(*self._offsets(directory))
        is_known = self._is_registered or directory.was_clean
        if len(written) == len(logs) and is_known:
            directory.end()

    def _offsets(
        self, directory: LogDirectory
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return recovery points and log start offsets of a directory's logs. Logs that are not
        open keep their last checkpoint, in case the broker fails to start."""
        recovery_points, starts = checkpoint_offsets(self._logs_in(directory))
        for partition, (home, _) in self._found.items():
            if home is directory and partition not in self.open_logs:
                _copy_offset(partition, directory.recovery_points, recovery_points)
                _copy_offset(partition, directory.log_start_offsets, starts)
        return recovery_points, starts


def _copy_offset(
    partition: TopicPartition, known: Mapping[TopicPartition, int], kept: dict[TopicPartition, int]
) -> None:
    if partition in known:
        kept[partition] = known[partition]


def _write_out(log: Log) -> bool:
    try:
        log.write_out()
    except OSError as error:
        logger.error("Could not close %s: %s", log.directory, error)
        return False
    return True


def _report(message: str) -> None:
    logger.warning("%s", message)
