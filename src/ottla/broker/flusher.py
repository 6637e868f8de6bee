"""Group commit: many appends share one sync.

`request` marks a partition for syncing. One round at a time runs in threads: it syncs the logs of
all marked partitions, then advances their recovery points and completes the futures that waited.
Records that are appended during a round are synced in the next one. So the number of syncs under
load depends on the disk, not on the number of requests.

If a sync fails, the kernel may have dropped the pages that it could not write, and a second sync
would succeed without them. The partition therefore goes offline until a restart recovers its log.
Any other failure (no space for an index or a snapshot) has lost nothing: the futures that waited
fail, and the flush is retried."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import Clock
from ottla.broker.partition import Partition
from ottla.storage.flush import FlushJob, SyncFailed
from ottla.storage.log_dirs import forget_boot_id
from ottla.storage.write_failure import describe_write_error

logger = logging.getLogger(__name__)
T = TypeVar("T")
RunBlocking = Callable[[Callable[[], T]], Awaitable[T]]

PARALLEL_SYNCS = 4
RETRY_S = 1.0


class Flusher:
    """The queue of partitions to sync."""

    def __init__(self, clock: Clock, run_blocking: RunBlocking[list[OSError | None]]) -> None:
        self._clock = clock
        self._run_blocking = run_blocking
        self._marked: dict[Partition, bool] = {}
        """Partition -> whether to save the indexes of its active segment, too."""
        self._waiting: list[tuple[Partition, int, asyncio.Future[None]]] = []
        self._round: asyncio.Task[None] | None = None
        self._failures: dict[Partition, str] = {}
        """Error messages of the current round."""
        self.rounds = 0
        self.on_offline: Callable[[Partition], object] = lambda partition: None
        """Called with a partition whose disk has failed."""
        self.on_sync_error: Callable[[Partition, OSError], object] = lambda partition, error: None
        """Called with every error, including those after which a later flush may succeed."""
        self._failing: set[Partition] = set()
        """Partitions whose last flush failed; only their first error is logged."""

    def request(self, partition: Partition, *, with_indexes: bool = False) -> None:
        self._marked[partition] = self._marked.get(partition, False) or with_indexes
        if self._round is None:
            self._round = asyncio.ensure_future(self._run())

    def wait_for(self, partition: Partition, offset: int) -> asyncio.Future[None]:
        """Return a future that completes when everything below `offset` is on disk. It fails with
        KafkaError if the flush fails."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if partition.log.recovery_point >= offset:
            future.set_result(None)
            return future
        self._waiting.append((partition, offset, future))
        self.request(partition)
        return future

    async def drain(self) -> None:
        """Wait until nothing is left to sync."""
        while self._round is not None:
            await asyncio.wait([self._round])

    async def _run(self) -> None:
        try:
            # Appends of the same event loop iteration belong to this round.
            await asyncio.sleep(0)
            while self._marked:
                marked, self._marked = self._marked, {}
                await self._sync(marked)
        finally:
            self._round = None

    async def _sync(self, marked: dict[Partition, bool]) -> None:
        self.rounds += 1
        jobs: list[tuple[Partition, FlushJob]] = []
        for partition, with_indexes in marked.items():
            if partition.offline_reason is None and not partition.log.is_truncating:
                try:
                    job = partition.log.begin_flush(with_indexes=with_indexes)
                except OSError as error:
                    self._failed(partition, error)
                else:
                    jobs.append((partition, job))
        shares = [jobs[start::PARALLEL_SYNCS] for start in range(PARALLEL_SYNCS)]
        outcomes = await asyncio.gather(
            *(self._run_share([job for _, job in share]) for share in shares if share)
        )
        now_ms = self._clock.time_ms()
        for share, errors in zip([share for share in shares if share], outcomes, strict=True):
            for (partition, job), failure in zip(share, errors, strict=True):
                if failure is not None:
                    partition.log.flush_failed(job)
                    self._failed(partition, failure)
                else:
                    self._failing.discard(partition)
                    partition.log.flushed(job, now_ms)
                    if partition.waits_for_sync:
                        partition.synced_to(job.offset)
        self._complete_waiting()

    async def _run_share(self, jobs: list[FlushJob]) -> list[OSError | None]:
        return await self._run_blocking(lambda: [_attempt(job) for job in jobs])

    def _failed(self, partition: Partition, error: OSError) -> None:
        reason = describe_write_error(partition.log.fs, partition.log.data_directory, error, 0)
        what = f"Could not flush {partition.key} to disk ({reason})"
        if isinstance(error, SyncFailed):
            what += "; restart the broker after repairing the disk"
            partition.go_offline(what)
            with contextlib.suppress(OSError):
                forget_boot_id(partition.log)
            self.on_offline(partition)
        else:
            asyncio.get_running_loop().call_later(RETRY_S, self.request, partition)
        if partition not in self._failing:
            self._failing.add(partition)
            logger.error("%s", what)
        self.on_sync_error(partition, error)
        self._failures[partition] = what
        if partition.waits_for_sync:
            partition.fail_waiting_produces(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what))

    def _complete_waiting(self) -> None:
        failures, self._failures = self._failures, {}
        still_waiting = []
        for partition, offset, future in self._waiting:
            if future.done():
                continue
            reason = failures.get(partition, partition.offline_reason)
            if partition.log.recovery_point >= offset:
                future.set_result(None)
            elif reason is not None:
                future.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason))
            else:
                still_waiting.append((partition, offset, future))
        self._waiting = still_waiting


def _attempt(job: FlushJob) -> OSError | None:
    try:
        job.run()
    except OSError as error:
        return error
    return None
