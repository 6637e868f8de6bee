"""Truncation of a follower's log to where it agrees with the leader's, off the event loop.

    1. The lower recovery point is checkpointed, because after a power cut only the log above the
       recovery point is checked.
    2. The log is truncated and synced in a thread.

Meanwhile the log is marked as truncating: nothing flushes, compacts or deletes its segments, and
its partition keeps its role. A role that is assigned meanwhile takes effect when the truncation is
over, because a leader must not start with a log that is about to be cut. Cutting it first is safe:
records that this leader lacks were not committed before its epoch, and no later leader that
counts on this replica commits anything before this replica has fetched from it.

A failure before the truncation itself changes nothing. If the truncation fails, the contents of the
log are unknown: the partition goes offline until a restart recovers the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.partition import Partition
from ottla.broker.ports import Threads, TimeSource
from ottla.storage.log_dirs import forget_boot_id

logger = logging.getLogger(__name__)


class Checkpoints(Protocol):
    """The checkpoints of the data directories."""

    async def write_checkpoints(self) -> None: ...


class TruncationPorts(Threads, TimeSource, Protocol):
    """The parts of a broker that truncations use."""

    @property
    def logs(self) -> Checkpoints: ...


class Truncations:
    """The truncations in progress on this broker."""

    def __init__(self, broker: TruncationPorts, on_over: Callable[[Partition], None]) -> None:
        """Create an empty set.

        Args:
            broker: The broker that holds the logs.
            on_over: Called with each partition that may change its role again.
        """
        self._broker = broker
        self._on_over = on_over
        self._running: set[asyncio.Task[None]] = set()

    async def truncate_to(
        self, partition: Partition, offset: int, is_wanted: Callable[[], bool]
    ) -> None:
        """Truncate the log to `offset`. Completes even if the caller is cancelled.

        Args:
            partition: The follower to truncate.
            offset: The first offset to remove.
            is_wanted: Checked once the recovery point is written; False skips the truncation.

        Raises:
            KafkaError: The disk refused the checkpoint or the truncation.
        """
        log, now_ms = partition.log, self._broker.clock.time_ms()
        logger.info(
            "%s: truncating from offset %d to %d", partition.key, log.log_end_offset, offset
        )
        await self._run(
            partition,
            lambda: log.end_after_truncation(offset),
            lambda: log.truncate_to(offset, now_ms),
            is_wanted,
        )

    async def truncate_fully(
        self, partition: Partition, offset: int, is_wanted: Callable[[], bool]
    ) -> None:
        """Remove all records, like `truncate_to`. The next record gets `offset`."""
        log, now_ms = partition.log, self._broker.clock.time_ms()
        logger.info(
            "%s: restarting the log at offset %d, to copy the leader's log", partition.key, offset
        )
        await self._run(partition, lambda: 0, lambda: log.truncate_fully(offset, now_ms), is_wanted)
        if log.log_start_offset == offset:
            partition.high_watermark = offset

    async def drain(self) -> None:
        """Wait until no truncation is in progress."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(
        self,
        partition: Partition,
        end_offset: Callable[[], int],
        truncate: Callable[[], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        task = asyncio.create_task(self._truncate(partition, end_offset, truncate, is_wanted))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    async def _truncate(
        self,
        partition: Partition,
        end_offset: Callable[[], int],
        truncate: Callable[[], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        broker, log = self._broker, partition.log
        log.begin_truncation()
        try:
            try:
                log.recovery_point = min(log.recovery_point, await broker.run_blocking(end_offset))
                await broker.logs.write_checkpoints()
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"its recovery point could not be written ({error.strerror})",
                ) from error
            if is_wanted():
                await self._carry_out(partition, truncate)
        finally:
            log.end_truncation()
            self._on_over(partition)

    async def _carry_out(self, partition: Partition, truncate: Callable[[], None]) -> None:
        try:
            await self._broker.run_blocking(truncate)
        except OSError as error:
            log = partition.log
            problem = f"Could not truncate {partition.key} in {log.directory} ({error.strerror})"
            partition.go_offline(f"{problem}; restart the broker after repairing the disk")
            with contextlib.suppress(OSError):
                forget_boot_id(log)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, problem) from error
        partition.truncated()
