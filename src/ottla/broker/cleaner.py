"""The log cleaner: chooses the next log to compact, runs a worker, and swaps the segments.

    dirtiest log that is due -> flush it up to the end of the section to clean -> worker process
        -> for each group of segments that the worker reports: still part of the log? swap them
        -> write the clean offset to cleaner-offset-checkpoint

A log stays in use while it is cleaned: the worker reads sealed segments, which never change, and a
swap is a few renames. If the log is deleted, truncated or shortened by retention meanwhile, the
result is discarded: the worker is stopped and its files are removed.

If cleaning fails with an I/O error (the disk is full, say), the log is retried later. Any other
failure means that the log is damaged: it is skipped until the broker restarts or the topic is
created again, and the other logs are cleaned as usual."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from ottla.base.errors import KafkaError
from ottla.base.ports import FileSystem
from ottla.base.types import TopicPartition
from ottla.broker.cleaner_checkpoints import CleanerCheckpoints
from ottla.broker.compactor import (
    CompactionCancelled,
    CompactionFailed,
    Compactor,
    WorkerCompactor,
)
from ottla.broker.partition import Partition
from ottla.broker.ports import (
    Configuration,
    Flushing,
    HostedPartitions,
    Threads,
    TimeSource,
)
from ottla.storage.compaction import remove_cleaned
from ottla.storage.compaction_job import CleanedSegment, CompactionResult
from ottla.storage.compaction_plan import (
    CleanerLimits,
    CompactionPlan,
    DirtyLog,
    assess,
    open_cleaned,
    plan,
)
from ottla.storage.log import Log
from ottla.storage.segment import Segment
from ottla.wire.records.errors import BatchError

logger = logging.getLogger(__name__)

LOGS_PER_YIELD = 50
"""Number of logs examined before the event loop does other work."""
RETRY_MS = 60_000
"""Time for which a log is skipped after an I/O error."""
MIN_IO_BUFFER_BYTES = 64 * 1024
MIB = 1024 * 1024


class CleanerPorts(Configuration, Flushing, HostedPartitions, Threads, TimeSource, Protocol):
    """The parts of a broker that the cleaner uses."""

    @property
    def fs(self) -> FileSystem: ...


RemoveSegments: TypeAlias = Callable[[list[Segment], int], None]
"""Deletes the files of segments after a delay in milliseconds."""


class _Skip(NamedTuple):
    """A log that is skipped until `until_ms`, or for good if that is None."""

    log: Log
    until_ms: int | None


class Cleaner:
    """Background compaction of all logs of a broker."""

    def __init__(
        self,
        broker: CleanerPorts,
        remove_segments: RemoveSegments,
        compactor: Compactor | None = None,
    ) -> None:
        """Create a cleaner; `run` runs it.

        Args:
            broker: The broker whose logs it cleans.
            remove_segments: Deletes the segments that compaction has replaced.
            compactor: Compacts one log; a worker process by default.
        """
        self._broker = broker
        self._remove_segments = remove_segments
        self._compactor = compactor or WorkerCompactor()
        self._checkpoints = CleanerCheckpoints(broker.fs, self._find_log, broker.run_blocking)
        self._in_progress: set[TopicPartition] = set()
        self._skipped: dict[TopicPartition, _Skip] = {}

    def is_cleaning(self, partition: TopicPartition) -> bool:
        """Return whether the partition is being cleaned. Retention skips it then, because deleting
        a segment would waste the work."""
        return partition in self._in_progress

    def is_uncleanable(self, partition: TopicPartition) -> bool:
        """Return whether cleaning the partition has failed for good."""
        skip = self._skipped.get(partition)
        return skip is not None and skip.until_ms is None

    # ------------------------------------------------------------------------------------ loop

    async def run(self) -> None:
        """Clean logs until cancelled. No worker is left running then."""
        await self._checkpoints.load(self._broker.config.log_dirs)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                await self._start_due(running)
                backoff_s = self._broker.config.log_cleaner_backoff_ms / 1000
                if running:
                    await asyncio.wait(
                        running, timeout=backoff_s, return_when=asyncio.FIRST_COMPLETED
                    )
                    running = {task for task in running if not task.done()}
                else:
                    await asyncio.sleep(backoff_s)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _start_due(self, running: set[asyncio.Task[None]]) -> None:
        try:
            await self._checkpoints.drop_deleted()
            while len(running) < self._broker.config.log_cleaner_threads:
                dirty = await self.find_dirtiest()
                if dirty is None:
                    return
                self._in_progress.add(dirty.log.partition)
                running.add(asyncio.ensure_future(self.clean(dirty)))
        except OSError as error:
            logger.warning("Compaction failed, retrying later: %s", error)
        except Exception:
            logger.exception("Could not select logs for compaction; retrying later")

    async def find_dirtiest(self) -> DirtyLog | None:
        """Return the due log with the highest dirty ratio, or None."""
        dirtiest: DirtyLog | None = None
        for number, partition in enumerate(list(self._broker.partitions.values())):
            if number % LOGS_PER_YIELD == LOGS_PER_YIELD - 1:
                await asyncio.sleep(0)
            if not self._may_clean(partition.log):
                continue
            dirty = self._assess(partition)
            if dirty is None or not dirty.is_due:
                continue
            if dirtiest is None or dirty.dirty_ratio > dirtiest.dirty_ratio:
                dirtiest = dirty
        return dirtiest

    def _may_clean(self, log: Log) -> bool:
        key = log.partition
        if not log.config.compact or key in self._in_progress or log.is_truncating:
            return False
        skip = self._skipped.get(key)
        if skip is None:
            return True
        is_over = skip.until_ms is not None and skip.until_ms <= self._broker.clock.time_ms()
        if skip.log is not log or is_over:
            del self._skipped[key]
            return True
        return False

    def _assess(self, partition: Partition) -> DirtyLog | None:
        log = partition.log
        try:
            return assess(
                log,
                self._checkpoints.get(log),
                partition.last_stable_offset,
                self._broker.clock.time_ms(),
            )
        except (BatchError, OSError) as error:
            self._failed(log, str(error), is_transient=isinstance(error, OSError))
            return None

    # --------------------------------------------------------------------------------- one log

    async def clean(self, dirty: DirtyLog) -> None:
        """Clean one log. Errors are logged and remembered, not raised."""
        log = dirty.log
        self._in_progress.add(log.partition)
        directory, is_done = log.directory, False
        try:
            await self._clean(dirty)
            is_done = True
        except CompactionCancelled:
            logger.info("%s changed during compaction; retrying", log.partition)
            self._skip(log, self._broker.config.log_cleaner_backoff_ms)
        except CompactionFailed as error:
            self._failed(log, str(error), is_transient=error.is_transient)
        except (KafkaError, OSError) as error:
            self._failed(log, str(error), is_transient=not isinstance(error, BatchError))
        except Exception as error:
            logger.exception("Unexpected error while compacting %s", log.partition)
            self._failed(log, repr(error), is_transient=False)
        finally:
            try:
                if not is_done:
                    await self._broker.run_blocking(
                        lambda: remove_cleaned(self._broker.fs, directory)
                    )
            except OSError as error:
                logger.warning("%s: %s", log.partition, error)
            finally:
                self._in_progress.discard(log.partition)

    async def _clean(self, dirty: DirtyLog) -> None:
        log, clock = dirty.log, self._broker.clock
        if dirty.is_checkpoint_wrong:
            logger.warning(
                "%s: compacting from offset %d, because the cleaner checkpoint is outside the log",
                log.partition,
                dirty.first_dirty_offset,
            )
        current = await self._flushed(dirty)
        planned = plan(current, self._limits(), clock.time_ms())
        began = clock.monotonic()
        result = await self._compactor.run(
            planned.job,
            lambda cleaned: self._swap(planned, cleaned),
            lambda: self._find_log(log.partition) is log,
        )
        if self._find_log(log.partition) is not log:
            raise CompactionCancelled
        await self._checkpoints.put(log, result.next_dirty_offset)
        _report(log, current, result, clock.monotonic() - began)

    async def _flushed(self, dirty: DirtyLog) -> DirtyLog:
        """Wait until the section to clean is on disk, then assess the log again."""
        partition = self._broker.partitions.get(dirty.log.partition)
        if partition is None or partition.log is not dirty.log:
            raise CompactionCancelled
        if dirty.log.recovery_point >= dirty.end_offset:
            return dirty
        await self._broker.flusher.wait_for(partition, dirty.end_offset)
        current = self._assess(partition)
        if current is None or not current.dirty_bytes:
            raise CompactionCancelled
        if current.end_offset > dirty.log.recovery_point:
            raise CompactionCancelled
        return current

    async def _swap(self, planned: CompactionPlan, cleaned: CleanedSegment) -> None:
        log = planned.log
        self._sources(planned, cleaned)
        new = open_cleaned(log, cleaned)
        await self._broker.run_blocking(new.commit_cleaned)
        try:
            sources = self._sources(planned, cleaned)
        except CompactionCancelled:
            await self._broker.run_blocking(new.remove)
            raise
        old = log.swap_segments(new, sources)
        self._remove_segments(old, log.config.file_delete_delay_ms)
        await self._broker.run_blocking(lambda: log.fs.sync_directory(log.directory))

    def _sources(self, planned: CompactionPlan, cleaned: CleanedSegment) -> list[Segment]:
        if self._find_log(planned.log.partition) is not planned.log or planned.log.is_truncating:
            raise CompactionCancelled
        sources = planned.sources_of(cleaned)
        if sources is None:
            raise CompactionCancelled
        return sources

    def _limits(self) -> CleanerLimits:
        config = self._broker.config
        threads = max(config.log_cleaner_threads, 1)
        return CleanerLimits(
            config.log_cleaner_dedupe_buffer_size // threads,
            config.log_cleaner_io_buffer_load_factor,
            max(config.log_cleaner_io_buffer_size // threads // 2, MIN_IO_BUFFER_BYTES),
            config.log_cleaner_io_max_bytes_per_second / threads,
        )

    def _find_log(self, key: TopicPartition) -> Log | None:
        partition = self._broker.partitions.get(key)
        return None if partition is None else partition.log

    # -------------------------------------------------------------------------------- failures

    def _failed(self, log: Log, message: str, *, is_transient: bool) -> None:
        if is_transient:
            logger.warning("Could not compact %s, retrying: %s", log.partition, message)
            self._skip(log, RETRY_MS)
        else:
            logger.error(
                "Could not compact %s; marking it as uncleanable: %s", log.partition, message
            )
            self._skipped[log.partition] = _Skip(log, None)

    def _skip(self, log: Log, delay_ms: int) -> None:
        until_ms = self._broker.clock.time_ms() + delay_ms
        self._skipped[log.partition] = _Skip(log, until_ms)


def _report(log: Log, dirty: DirtyLog, result: CompactionResult, seconds: float) -> None:
    stats = result.stats
    logger.info(
        "%s: compacted offsets %d to %d in %.1f s; retained %d of %d records, %.1f of %.1f MB",
        log.partition,
        dirty.first_dirty_offset,
        result.next_dirty_offset,
        seconds,
        stats.kept_records,
        stats.read_records,
        stats.written_bytes / MIB,
        stats.read_bytes / MIB,
    )
    if stats.keyless_records:
        logger.warning("%s: removed %d records without a key", log.partition, stats.keyless_records)
