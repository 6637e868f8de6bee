"""A partition that this broker holds: its log, its leadership, and who waits for it.

The high watermark is the offset below which consumers may read. Alone, a broker's watermark is the
end of its log; with `log.flush.acks.all` it is how far the log is synced, so that nothing a
consumer has seen can be lost by a power cut."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import ReadableBuffer
from ottla.base.types import TopicPartition
from ottla.core.produce import needs_records
from ottla.storage.log import AppendResult, Log
from ottla.wire.records.batch import BatchHeader


class FetchWaiter(Protocol):
    """A fetch that waits for more records."""

    def more_bytes(self, count: int, *, is_stable: bool) -> None:
        """`is_stable`: no transaction keeps readers of decided ones from them."""

    def stable_offset_moved(self) -> None:
        """A transaction was decided, so that there may be more to read for those who wait for
        that, even if nothing was appended."""

    def wake(self) -> None:
        """Something else happened to the partition; look again now."""


class Partition:
    __slots__ = (
        "appended_bytes",
        "high_watermark",
        "key",
        "leader_epoch",
        "log",
        "looks_into_batches",
        "offline_reason",
        "undecided",
        "unsynced_bytes",
        "waits_for_sync",
        "waiters",
    )

    def __init__(self, log: Log, leader_epoch: int, *, waits_for_sync: bool) -> None:
        self.log = log
        self.key: TopicPartition = log.partition
        self.leader_epoch = leader_epoch
        self.waits_for_sync = waits_for_sync
        self.looks_into_batches = needs_records(log.config)
        self.high_watermark = log.log_end_offset
        self.waiters: set[FetchWaiter] = set()
        self.offline_reason: str | None = None
        """Set when a sync failed: nobody knows what is on disk, so nothing more is written until a
        restart has looked."""
        self.undecided: deque[tuple[int, int]] = deque()
        """(first offset, offset of the marker) of transactions whose markers are not below the
        high watermark: that they are over may yet be lost. In the order of the markers."""
        self.appended_bytes = 0
        self.unsynced_bytes = 0

    def use_config(self, config: TopicConfig) -> None:
        self.log.config = config
        self.looks_into_batches = needs_records(config)

    def append(self, batch: ReadableBuffer, header: BatchHeader, now_ms: int) -> AppendResult:
        """Raises KafkaError."""
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason)
        if header.is_control:
            return self._end_transaction(batch, header, now_ms)
        result = self.log.append(batch, header, self.leader_epoch, now_ms)
        if not result.is_duplicate:
            size = header.size
            self.appended_bytes += size
            if self.waits_for_sync:
                self.unsynced_bytes += size
            else:
                self.high_watermark = result.last_offset + 1
                if self.waiters:
                    self._tell_waiters(size)
        return result

    def _end_transaction(
        self, marker: ReadableBuffer, header: BatchHeader, now_ms: int
    ) -> AppendResult:
        first_offset = self.log.producers.txn_first_offset(header.producer_id)
        result = self.log.append(marker, header, self.leader_epoch, now_ms)
        self.appended_bytes += header.size
        if self.waits_for_sync:
            self.unsynced_bytes += header.size
            if first_offset is not None:
                self.undecided.append((first_offset, result.last_offset))
        else:
            self.high_watermark = result.last_offset + 1
            if self.waiters:
                self._tell_waiters(header.size)
                self._tell_of_decision()
        return result

    def synced_to(self, offset: int) -> None:
        """Everything below `offset` is on disk."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            size, self.unsynced_bytes = self.unsynced_bytes, 0
            has_decided = False
            while self.undecided and self.undecided[0][1] < offset:
                self.undecided.popleft()
                has_decided = True
            if self.waiters:
                self._tell_waiters(size)
                if has_decided:
                    self._tell_of_decision()

    def _tell_waiters(self, size: int) -> None:
        is_stable = self.log.producers.first_unstable_offset is None and not self.undecided
        for waiter in tuple(self.waiters):
            waiter.more_bytes(size, is_stable=is_stable)

    def _tell_of_decision(self) -> None:
        for waiter in tuple(self.waiters):
            waiter.stable_offset_moved()

    def wake_waiters(self) -> None:
        for waiter in tuple(self.waiters):
            waiter.wake()

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, for certain."""
        log, stable = self.log, self.high_watermark
        unstable = log.producers.first_unstable_offset
        if unstable is not None:
            # Retention may have taken the beginning of a transaction that is still open.
            stable = min(max(unstable, log.log_start_offset), stable)
        if self.undecided:
            first = min(first_offset for first_offset, _ in self.undecided)
            stable = min(max(first, log.log_start_offset), stable)
        return stable

    def readable_to(self, *, committed_only: bool) -> int:
        return self.last_stable_offset if committed_only else self.high_watermark

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(The newest leader epoch that is not after `epoch`, where it ended); -1 twice if none is
        known. The present one ends where the log does, even if it has no record yet."""
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    def check_leader_epoch(self, epoch: int) -> None:
        """KIP-320: refuse a client whose metadata is older or newer than ours. -1: not told."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.key} is at leader epoch {self.leader_epoch}, not {epoch}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.key} is at leader epoch {self.leader_epoch}; {epoch} is not known here yet",
        )
