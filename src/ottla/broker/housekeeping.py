"""Periodic work of a broker: retention, due flushes, checkpoints, expiry of idle producers, and the
removal of deleted files. Each runs in its own loop, which survives failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from ottla.broker.cleaner import Cleaner, CleanerPorts
from ottla.broker.delegation_tokens import DelegationTokens
from ottla.broker.logs import Logs
from ottla.broker.partition import Partition
from ottla.broker.ports import Tasks
from ottla.storage.retention import apply_retention
from ottla.storage.segment import Segment

logger = logging.getLogger(__name__)

FLUSH_CHECK_MS = 1_000
DISK_CHECK_MS = 1_000
"""Interval between probes of a directory that refuses writes."""
REOPEN_MS = 5_000
CERTIFICATE_CHECK_MS = 2_000
NEVER_MS = 2**63 - 1


class HousekeepingPorts(CleanerPorts, Tasks, Protocol):
    """The parts of a broker that its periodic work uses."""

    @property
    def logs(self) -> Logs: ...

    @property
    def delegation_tokens(self) -> DelegationTokens: ...

    async def open_missing(self) -> None:
        """Retry the logs that could not be opened."""

    async def check_tls(self) -> None:
        """Load changed TLS certificates."""


class Housekeeping:
    """The background tasks of a broker."""

    def __init__(self, broker: HousekeepingPorts) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._removals: set[asyncio.TimerHandle] = set()
        self._cleaner: Cleaner | None = None

    def start(self) -> None:
        broker = self._broker
        self._every(lambda: broker.config.log_retention_check_interval_ms, self.enforce_retention)
        self._every(lambda: FLUSH_CHECK_MS, self._flush_due)
        self._every(lambda: DISK_CHECK_MS, broker.logs.disk_watch.probe)
        self._every(lambda: REOPEN_MS, broker.open_missing)
        if broker.delegation_tokens.is_enabled:
            self._every(
                lambda: broker.config.delegation_token_expiry_check_interval_ms,
                broker.delegation_tokens.remove_expired,
            )
        if broker.config.tls_settings:
            self._every(lambda: CERTIFICATE_CHECK_MS, broker.check_tls)
        self._every(
            lambda: broker.config.log_flush_offset_checkpoint_interval_ms,
            broker.logs.write_checkpoints,
        )
        self._every(
            lambda: broker.config.producer_id_expiration_check_interval_ms, self._expire_producers
        )
        if broker.config.log_cleaner_enable:
            self._cleaner = Cleaner(broker, self.remove_segments_later)
            self._tasks.append(asyncio.ensure_future(self._cleaner.run()))
        for path in broker.logs.unfinished_deletions():
            self._tasks.append(asyncio.ensure_future(self._remove_directory(path)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for removal in self._removals:
            removal.cancel()

    def _every(self, interval_ms: Callable[[], int], work: Callable[[], Awaitable[None]]) -> None:
        async def loop() -> None:
            while True:
                await asyncio.sleep(interval_ms() / 1000)
                try:
                    await work()
                except OSError as error:
                    logger.warning("%s failed, retrying later: %s", work.__qualname__, error)
                except Exception:
                    logger.exception("%s failed; retrying later", work.__qualname__)

        self._tasks.append(asyncio.ensure_future(loop()))

    # --------------------------------------------------------------------------------- retention

    async def enforce_retention(self) -> None:
        broker = self._broker
        for partition in list(broker.partitions.values()):
            if self._cleaner is not None and self._cleaner.is_cleaning(partition.key):
                continue  # it would make the cleaner's work useless; the next check is soon enough
            if partition.log.is_truncating:
                continue
            try:
                await self._remove_expired_segments(partition)
            except OSError as error:
                # Rolling needs disk space; the other partitions may still free some.
                logger.warning("%s: retention failed, retrying later: %s", partition.key, error)
            await asyncio.sleep(0)

    async def _remove_expired_segments(self, partition: Partition) -> None:
        broker, log = self._broker, partition.log
        oldest = log.segments[0]
        if not oldest.knows_max_timestamp:
            await broker.run_blocking(lambda: oldest.max_timestamp)
        removed, reason = apply_retention(log, partition.high_watermark, broker.clock.time_ms())
        if removed:
            logger.info("%s: removing %d segments (%s)", partition.key, len(removed), reason)
            self.remove_segments_later(removed, log.config.file_delete_delay_ms)
        if log.wants_flush:
            broker.flusher.request(partition)  # rolled: the old segment must be flushed

    def remove_segments_later(self, segments: list[Segment], delay_ms: int) -> None:
        def remove() -> None:
            for segment in segments:
                segment.remove()

        self._later(delay_ms, lambda: self._broker.run_blocking(remove))

    def remove_later(self, directory: str) -> None:
        delay_ms = self._broker.config.log_segment_delete_delay_ms
        self._later(delay_ms, lambda: self._remove_directory(directory))

    async def _remove_directory(self, path: str) -> None:
        await self._broker.run_blocking(lambda: self._broker.fs.remove_tree(path))

    def _later(self, delay_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` after a delay. If the broker stops first, the next start removes the files."""

        async def attempt() -> None:
            try:
                await work()
            except OSError as error:
                logger.warning("Could not remove a deleted file: %s", error)

        def begin() -> None:
            self._removals.discard(handle)
            self._broker.spawn(attempt())

        handle = asyncio.get_running_loop().call_later(delay_ms / 1000, begin)
        self._removals.add(handle)

    # ------------------------------------------------------------------------------------- others

    async def _flush_due(self) -> None:
        broker = self._broker
        now_ms = broker.clock.time_ms()
        for partition in list(broker.partitions.values()):
            log = partition.log
            if log.config.flush_ms == NEVER_MS or not log.unflushed_messages:
                continue
            if now_ms - log.last_flush_ms >= log.config.flush_ms:
                broker.flusher.request(partition, with_indexes=True)

    async def _expire_producers(self) -> None:
        broker = self._broker
        for partition in list(broker.partitions.values()):
            if not partition.log.is_truncating:
                partition.log.producers.expire(
                    broker.clock.time_ms(), broker.config.producer_id_expiration_ms
                )
            await asyncio.sleep(0)
