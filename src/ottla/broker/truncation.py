"""Cutting a follower's log back to where it agrees with its leader's, while the loop goes on.

    1. the lower recovery point is written down: what a power cut leaves of a truncation is checked
       only behind it
    2. the log is cut, and synced, in a thread

From the beginning to the end the log is *being truncated*: nobody flushes, compacts or shortens it,
and its partition keeps the role it has. A role that comes meanwhile is taken when it is over: a
leader must not begin with a log that is about to be cut. To cut it then is no harm: what a leader
lacks was not committed before its epoch, and nothing is committed by a later one that counts on
this replica before it has fetched there.

What fails before the log is touched has changed nothing. When cutting itself fails, nobody knows
what is there: the partition goes offline, and a restart finds out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.partition import Partition
from ottla.storage.log_dirs import doubt_log

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

logger = logging.getLogger(__name__)


class Truncations:
    def __init__(self, broker: Broker, on_over: Callable[[Partition], None]) -> None:
        """`on_over` is told when a partition may change its role again."""
        self._broker = broker
        self._on_over = on_over
        self._running: set[asyncio.Task[None]] = set()

    async def cut(self, partition: Partition, offset: int, is_wanted: Callable[[], bool]) -> None:
        """Drop everything from `offset` on, unless that is not wanted any more once the recovery
        point is written. Raises KafkaError. It ends even if the caller is cancelled."""
        log, now_ms = partition.log, self._broker.clock.time_ms()
        logger.info("%s: cut from %d to %d", partition.key, log.log_end_offset, offset)
        await self._run(
            partition,
            lambda: log.kept_below(offset),
            lambda: log.truncate_to(offset, now_ms),
            is_wanted,
        )

    async def begin_anew(
        self, partition: Partition, offset: int, is_wanted: Callable[[], bool]
    ) -> None:
        """Empty the log, as `cut`; the next record gets `offset`."""
        log, now_ms = partition.log, self._broker.clock.time_ms()
        logger.info("%s: begins anew at %d, with its leader's log", partition.key, offset)
        await self._run(partition, lambda: 0, lambda: log.truncate_fully(offset, now_ms), is_wanted)
        if log.log_start_offset == offset:
            partition.high_watermark = offset

    async def settle(self) -> None:
        """Returns when none is under way."""
        while self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(
        self,
        partition: Partition,
        kept: Callable[[], int],
        cut: Callable[[], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        task = asyncio.create_task(self._cut(partition, kept, cut, is_wanted))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    async def _cut(
        self,
        partition: Partition,
        kept: Callable[[], int],
        cut: Callable[[], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        broker, log = self._broker, partition.log
        log.begin_truncation()
        try:
            try:
                log.recovery_point = min(log.recovery_point, await broker.run_blocking(kept))
                await broker.logs.write_checkpoints()
            except OSError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"its recovery point cannot be written ({error.strerror})",
                ) from error
            if is_wanted():
                await self._carry_out(partition, cut)
        finally:
            log.end_truncation()
            self._on_over(partition)

    async def _carry_out(self, partition: Partition, cut: Callable[[], None]) -> None:
        try:
            await self._broker.run_blocking(cut)
        except OSError as error:
            log = partition.log
            what = f"{partition.key} cannot be cut back in {log.directory} ({error.strerror})"
            partition.go_offline(f"{what}; restart the broker when the disk is well")
            with contextlib.suppress(OSError):
                doubt_log(log)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what) from error
        partition.truncated()
