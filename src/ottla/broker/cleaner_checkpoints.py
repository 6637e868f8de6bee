"""The offset up to which each log is clean: `cleaner-offset-checkpoint` in each data directory.

The files contain topic names, not topic IDs. To prevent a topic that was deleted and created again
from inheriting the old offset, each offset is kept with the ID of its topic, and offsets of logs
that no longer exist are removed from the files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from ottla.base.ports import FileSystem, RunBlocking
from ottla.base.types import TopicPartition
from ottla.storage import checkpoint
from ottla.storage.log import Log

logger = logging.getLogger(__name__)


class _CleanOffset(NamedTuple):
    offset: int
    topic_id: bytes
    data_directory: str


class CleanerCheckpoints:
    """The cleaner offsets of all logs."""

    def __init__(
        self,
        fs: FileSystem,
        find_log: Callable[[TopicPartition], Log | None],
        run_blocking: RunBlocking,
    ) -> None:
        self._fs = fs
        self._find_log = find_log
        self._run_blocking = run_blocking
        self._clean: dict[TopicPartition, _CleanOffset] = {}
        self._writing = asyncio.Lock()

    async def load(self, data_directories: Iterable[str]) -> None:
        for path in data_directories:
            directory = path.rstrip("/")
            offsets = await self._run_blocking(partial(self._read, directory))
            for partition, offset in offsets.items():
                log = self._find_log(partition)
                if log is not None and _data_directory(log) == directory:
                    self._clean[partition] = _CleanOffset(offset, log.topic_id, directory)

    def _read(self, data_directory: str) -> dict[TopicPartition, int]:
        try:
            return checkpoint.read_offsets(self._fs, _path(data_directory))
        except (checkpoint.MalformedCheckpoint, OSError) as error:
            logger.warning("%s; compacting the logs in this directory from their start", error)
            return {}

    def get(self, log: Log) -> int | None:
        clean = self._clean.get(log.partition)
        return clean.offset if clean is not None and _belongs_to(clean, log) else None

    async def put(self, log: Log, offset: int) -> None:
        directory = _data_directory(log)
        self._clean[log.partition] = _CleanOffset(offset, log.topic_id, directory)
        await self._write([directory])

    async def drop_deleted(self) -> None:
        """Remove the offsets of logs that no longer exist."""
        gone = {
            partition: clean
            for partition, clean in self._clean.items()
            if (log := self._find_log(partition)) is None or not _belongs_to(clean, log)
        }
        for partition in gone:
            del self._clean[partition]
        await self._write(sorted({clean.data_directory for clean in gone.values()}))

    async def _write(self, directories: Iterable[str]) -> None:
        for directory in directories:
            async with self._writing:
                offsets = {
                    partition: clean.offset
                    for partition, clean in self._clean.items()
                    if clean.data_directory == directory
                }
                await self._run_blocking(
                    partial(checkpoint.write_offsets, self._fs, _path(directory), offsets)
                )


def _belongs_to(clean: _CleanOffset, log: Log) -> bool:
    return clean.topic_id == log.topic_id and clean.data_directory == _data_directory(log)


def _data_directory(log: Log) -> str:
    return log.directory.rpartition("/")[0]


def _path(data_directory: str) -> str:
    return f"{data_directory}/{checkpoint.CLEANER_OFFSETS}"
