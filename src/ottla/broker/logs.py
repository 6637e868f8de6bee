"""The logs in this broker's data directories: found, opened, created, deleted.

`open` does the work of the disk and may run in a thread; what it returns is registered by the
broker on its loop. A directory that belongs to nobody (its topic was deleted while the broker was
down, or another topic has its name now) is set aside as `-stray`, never served, never removed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import UserError
from ottla.base.ports import Clock, FileSystem
from ottla.base.types import TopicPartition
from ottla.storage.log import Log
from ottla.storage.log_dirs import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    FoundLog,
    LogDirectory,
    checkpoint_offsets,
)
from ottla.storage.recovery import OpenLog, open_log

logger = logging.getLogger(__name__)


class WantedLog(NamedTuple):
    partition: TopicPartition
    topic_id: bytes
    config: TopicConfig


class Logs:
    def __init__(
        self,
        fs: FileSystem,
        paths: Sequence[str],
        clock: Clock,
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self.fs = fs
        self.directories = [LogDirectory(fs, path) for path in paths]
        self.open_logs: dict[TopicPartition, Log] = {}
        self.unopened: dict[tuple[str, int], WantedLog] = {}
        self._clock = clock
        self._run_blocking = run_blocking
        self._found: dict[TopicPartition, tuple[LogDirectory, FoundLog]] = {}
        self._checkpointing = asyncio.Lock()
        self._in_directory: Counter[str] = Counter()
        self.high_watermark: Callable[[TopicPartition], int | None] | None = None
        """Of a partition; set in a cluster, where checkpoints keep it."""
        self._is_settled = False

    # ----------------------------------------------------------------------------------- start

    def begin(self) -> None:
        """Read what the last run left in every directory."""
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
    def lost_nothing(self) -> bool:
        """Whether everything is there that the last run wrote, be it synced or not."""
        return all(directory.lost_nothing for directory in self.directories)

    def settle(self) -> None:
        """The cluster knows of this run, and of what the one before may have lost. Only now may the
        directories say that nothing was lost since."""
        for directory in self.directories:
            directory.note_boot()
        self._is_settled = True

    @property
    def found(self) -> list[FoundLog]:
        """Logs in the directories that nobody has asked for yet."""
        return [found for _, found in self._found.values()]

    def set_strays_aside(self) -> None:
        for directory, found in list(self._found.values()):
            if found.partition not in self.unopened:
                self._set_stray_aside(directory, found)
                del self._found[found.partition]

    def _set_stray_aside(self, directory: LogDirectory, found: FoundLog) -> None:
        target = directory.set_aside(found.path, STRAY_SUFFIX)
        logger.warning("%s belongs to no topic; it is kept as %s", found.path, target)

    # ----------------------------------------------------------------------------------- opening

    def open(self, wanted: Iterable[WantedLog]) -> list[Log]:
        """Open or create logs. Call `opened` with the result on the loop. Those that the disk does
        not let us open are missing from the result and listed in `unopened`."""
        touched: dict[str, LogDirectory] = {}
        logs = []
        for log in wanted:
            try:
                directory, path, is_new = self._place(log)
                if is_new:
                    touched[directory.path] = directory
                logs.append(self._open_one(log, directory, path, is_new))
            except OSError as error:
                logger.error("%s cannot be opened: %s; it is tried again", log.partition, error)
                self.unopened[log.partition] = log
            else:
                self.unopened.pop(log.partition, None)
        for directory in touched.values():
            directory.sync()
        return logs

    def opened(self, logs: Iterable[Log]) -> None:
        for log in logs:
            self.open_logs[log.partition] = log
            self._found.pop(log.partition, None)

    def _place(self, wanted: WantedLog) -> tuple[LogDirectory, str, bool]:
        known = self._found.get(wanted.partition)
        if known is not None:
            directory, found = known
            if found.topic_id in (None, wanted.topic_id):
                self._in_directory[directory.path] += 1
                if found.topic_id is None:
                    directory.create_log_directory(wanted.partition, wanted.topic_id)
                return directory, found.path, False
            self._set_stray_aside(directory, found)
            del self._found[wanted.partition]
        directory = min(self.directories, key=lambda each: self._in_directory[each.path])
        self._in_directory[directory.path] += 1
        return directory, directory.create_log_directory(wanted.partition, wanted.topic_id), True

    def _open_one(self, wanted: WantedLog, directory: LogDirectory, path: str, is_new: bool) -> Log:
        partition = wanted.partition
        known = OpenLog(
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

    # ----------------------------------------------------------------------------- life and death

    def delete(self, log: Log) -> str:
        """Take a log out of service. Returns the directory to remove once nobody reads it."""
        self.open_logs.pop(log.partition, None)
        directory = self._directory_of(log)
        self._in_directory[directory.path] -= 1
        target = directory.set_aside(log.directory, DELETE_SUFFIX)
        for segment in log.segments:
            segment.is_removed = True
            segment.close()
        return target

    def _directory_of(self, log: Log) -> LogDirectory:
        parent = log.directory.rpartition("/")[0]
        return next(directory for directory in self.directories if directory.path == parent)

    def leftovers(self) -> list[str]:
        return [path for directory in self.directories for path in directory.leftovers()]

    def high_watermark_of(self, log: Log) -> int:
        """As the last run left it; what lies behind it has to be confirmed again."""
        known = self._directory_of(log).high_watermarks.get(log.partition, 0)
        return max(log.log_start_offset, min(known, log.log_end_offset))

    async def write_high_watermarks(self) -> None:
        if self.high_watermark is None:
            return
        writes = []
        for directory in self.directories:
            offsets = {
                key: offset
                for key, log in self.open_logs.items()
                if log.directory.rpartition("/")[0] == directory.path
                and (offset := self.high_watermark(key)) is not None
            }
            writes.append((directory, offsets))

        def write() -> None:
            for directory, offsets in writes:
                directory.write_high_watermarks(offsets)

        async with self._checkpointing:
            await self._run_blocking(write)

    async def write_checkpoints(self) -> None:
        """Write recovery points and log start offsets of every directory."""
        async with self._checkpointing:
            writes = []
            for directory in self.directories:
                offsets = checkpoint_offsets(
                    log
                    for log in self.open_logs.values()
                    if log.directory.rpartition("/")[0] == directory.path
                )
                writes.append((directory, offsets))

            def write() -> None:
                for directory, (recovery_points, starts) in writes:
                    directory.write_checkpoints(recovery_points, starts)

            await self._run_blocking(write)

    def close(self, offline: Container[tuple[str, int]] = ()) -> None:
        """Leave every log so that the next start has nothing to check. One that is offline or
        cannot be closed leaves its directory unclean, and is checked from its recovery point; so
        does a run that ends before it has settled, if the one before it was unclean."""
        for directory in self.directories:
            logs = [
                log
                for log in self.open_logs.values()
                if log.directory.rpartition("/")[0] == directory.path
            ]
            try:
                self._close(directory, logs, offline)
            except OSError as error:
                logger.error("%s could not be closed: %s", directory.path, error)

    def _close(
        self, directory: LogDirectory, logs: list[Log], offline: Container[tuple[str, int]]
    ) -> None:
        written = [log for log in logs if log.partition not in offline and _is_written_out(log)]
        self.fs.sync_below(directory.path)
        for log in written:
            log.synced()
        self.fs.sync_below(directory.path)
        directory.write_checkpoints(*checkpoint_offsets(logs))
        is_known = self._is_settled or directory.was_clean
        if len(written) == len(logs) and is_known:
            directory.end()


def _is_written_out(log: Log) -> bool:
    try:
        log.write_out()
    except OSError as error:
        logger.error("%s could not be closed: %s", log.directory, error)
        return False
    return True


def _report(message: str) -> None:
    logger.warning("%s", message)
