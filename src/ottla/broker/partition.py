"""A partition that this broker holds: its log, its role, and who waits for it.

The high watermark is the offset below which consumers may read, and up to which a write with
acks=all is granted (*confirmed*). It depends on the role:

    alone       the end of the log; with `log.flush.acks.all` how far the log is synced, so that
                nothing a consumer has seen can be lost by a power cut
    leader      how far every member of the ISR has it (core.replication.leadership), this broker's
                own log counting as far as it would alone
    follower    what the leader said, within the own log

Only a leader, or a broker alone, appends what clients send."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol
from weakref import WeakValueDictionary

from ottla.base.config.topic import TopicConfig
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.ports import ReadableBuffer
from ottla.base.types import TopicPartition
from ottla.core.produce import needs_records
from ottla.core.replication.leadership import Leadership
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


class VerificationGuard:
    """Stands for the question whether a partition is part of a producer's transaction, as long as
    somebody who asked keeps it. A marker of the producer makes it void: the answer may be about the
    transaction that has just ended (KIP-890)."""

    __slots__ = ("__weakref__",)


class Partition:
    __slots__ = (
        "_confirmations",
        "_guards",
        "_proofs",
        "_unconfirmed_bytes",
        "appended_bytes",
        "confirms_at_once",
        "high_watermark",
        "is_leader",
        "key",
        "leader_epoch",
        "leadership",
        "log",
        "looks_into_batches",
        "offline_reason",
        "replica_waiters",
        "undecided",
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
        self.is_leader = True
        self.leadership: Leadership | None = None
        """Of a leader in a cluster; a broker alone needs none."""
        self.confirms_at_once = not waits_for_sync
        """Alone, and without syncs: what is appended is below the high watermark."""
        self.waiters: dict[FetchWaiter, None] = {}
        """In the order in which they came: who waits longest is told first."""
        self.replica_waiters: dict[FetchWaiter, None] = {}
        """Followers' fetches: they wait for what is appended, not for what is confirmed."""
        self.offline_reason: str | None = None
        """Set when a sync failed: nobody knows what is on disk, so nothing more is written until a
        restart has looked."""
        self.undecided: deque[tuple[int, int]] = deque()
        """(first offset, offset of the marker) of transactions whose markers are not below the
        high watermark: that they are over may yet be lost. In the order of the markers."""
        self.appended_bytes = 0
        self._unconfirmed_bytes = 0
        self._confirmations: deque[tuple[int, asyncio.Future[None]]] = deque()
        """(offset, who waits for the high watermark to reach it)."""
        self._proofs: deque[tuple[float, asyncio.Future[None]]] = deque()
        """(since when, who waits for the proof that this broker has led at some moment since)."""
        self._guards: WeakValueDictionary[int, VerificationGuard] | None = None
        """By producer id."""

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
            if self.confirms_at_once:
                self.high_watermark = result.last_offset + 1
                if self.waiters:
                    self._tell_waiters(size)
            else:
                self._appended(size)
        return result

    def _end_transaction(
        self, marker: ReadableBuffer, header: BatchHeader, now_ms: int
    ) -> AppendResult:
        first_offset = self.log.producers.txn_first_offset(header.producer_id)
        result = self.log.append(marker, header, self.leader_epoch, now_ms)
        self.appended_bytes += header.size
        if self._guards is not None:
            self._guards.pop(header.producer_id, None)
        if not self.confirms_at_once:
            if first_offset is not None:
                self.undecided.append((first_offset, result.last_offset))
            self._appended(header.size)
        else:
            self.high_watermark = result.last_offset + 1
            if self.waiters:
                self._tell_waiters(header.size)
                self._tell_of_decision()
        return result

    def append_replicated(self, batch: ReadableBuffer, header: BatchHeader, now_ms: int) -> None:
        """Write what the leader has. Raises KafkaError."""
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason)
        first_offset = None
        if header.is_control:
            first_offset = self.log.producers.txn_first_offset(header.producer_id)
        self.log.append_as_follower(batch, header, now_ms)
        self.appended_bytes += header.size
        self._unconfirmed_bytes += header.size
        if first_offset is not None:
            self.undecided.append((first_offset, header.last_offset))

    # ---------------------------------------------------------------------------- transactions

    def guard(self, producer_id: int) -> VerificationGuard:
        """To be kept from the question to the append (`is_guarded`)."""
        if self._guards is None:
            self._guards = WeakValueDictionary()
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = VerificationGuard()
        return guard

    def is_guarded(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether no marker of the producer has come, and the role has not changed, since."""
        return self._guards is not None and self._guards.get(producer_id) is guard

    # ---------------------------------------------------------------------------- confirmation

    def _appended(self, size: int) -> None:
        self._unconfirmed_bytes += size
        for waiter in tuple(self.replica_waiters):
            waiter.more_bytes(size, is_stable=True)
        if self.leadership is not None and not self.waits_for_sync:
            self.advance()

    def advance(self) -> None:
        """The leader's log, or a follower's, or the ISR, is not what it was."""
        leadership = self.leadership
        if leadership is None:
            return
        own_end = self.log.recovery_point if self.waits_for_sync else self.log.log_end_offset
        if leadership.advance(own_end):
            self._confirm(leadership.high_watermark)

    def synced_to(self, offset: int) -> None:
        """Everything below `offset` is on disk."""
        if self.leadership is not None:
            self.advance()
        elif self.is_leader:
            self._confirm(offset)

    def follow_high_watermark(self, offset: int) -> None:
        """The leader says that everything below `offset` is confirmed."""
        self._confirm(min(offset, self.log.log_end_offset))

    def _confirm(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        size, self._unconfirmed_bytes = self._unconfirmed_bytes, 0
        has_decided = False
        while self.undecided and self.undecided[0][1] < offset:
            self.undecided.popleft()
            has_decided = True
        while self._confirmations and self._confirmations[0][0] <= offset:
            _, future = self._confirmations.popleft()
            if not future.done():
                future.set_result(None)
        if self.waiters:
            self._tell_waiters(size)
            if has_decided:
                self._tell_of_decision()

    def confirmed(self, offset: int) -> asyncio.Future[None]:
        """Done when the high watermark is at `offset`; fails with KafkaError if it cannot be."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.high_watermark >= offset:
            future.set_result(None)
        else:
            # A retry of an older batch may wait for less than those before it: then for as much.
            last = self._confirmations[-1][0] if self._confirmations else offset
            self._confirmations.append((max(offset, last), future))
        return future

    def go_offline(self, reason: str) -> None:
        """Nobody knows what is on disk: nothing more is written, until a restart has looked."""
        self.offline_reason = reason

    def refuse_confirmations(self, error: KafkaError) -> None:
        """Tell those who wait that they wait in vain."""
        waiting, self._confirmations = self._confirmations, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody may be waiting any more

    # ----------------------------------------------------------------------------------- proofs

    def proof(self, now: float) -> asyncio.Future[None]:
        """Done when it is certain that this broker led at `now` or later, though it has no lease:
        every member of the ISR has fetched from it since, and so none follows another, without
        which no other can have committed anything. Fails with KafkaError if it leads no more."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._proofs.append((now, future))
        self.followers_fetched()
        for waiter in tuple(self.replica_waiters):
            waiter.wake()
        return future

    @property
    def wants_proof(self) -> bool:
        """Whether followers' fetches are to be answered at once, so that they come again."""
        return bool(self._proofs)

    def followers_fetched(self) -> None:
        if self._proofs:
            leadership = self.leadership
            self.prove(float("inf") if leadership is None else leadership.heard_since())

    def prove(self, moment: float) -> None:
        """This broker led at this moment, by a lease or by what its followers did."""
        while self._proofs and self._proofs[0][0] < moment:
            _, future = self._proofs.popleft()
            if not future.done():
                future.set_result(None)

    # ------------------------------------------------------------------------------------ roles

    @property
    def in_sync_count(self) -> int:
        """Members of the committed ISR; a broker alone is the only one."""
        return 1 if self.leadership is None else len(self.leadership.isr)

    def check_in_sync(self) -> None:
        """Raises KafkaError unless what is written now may be granted with acks=all. A broker alone
        is all there is, whatever `min.insync.replicas` its own topics were made with."""
        leadership, min_insync = self.leadership, self.log.config.min_insync_replicas
        if leadership is not None and not leadership.grants(min_insync):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.key} has {len(leadership.isr)} in-sync replicas, min.insync.replicas is "
                f"{min_insync}",
            )

    def lead(self, leadership: Leadership) -> None:
        """Be the leader, in a cluster. Who wrote to the leader before must ask again."""
        self.is_leader = True
        self.leadership = leadership
        self.leader_epoch = leadership.leader_epoch
        self.confirms_at_once = False
        self.advance()
        self.wake_waiters()

    def follow(self, leader_epoch: int) -> None:
        """Be a follower, or wait for a leader."""
        self.is_leader = False
        self.leadership = None
        self.leader_epoch = leader_epoch
        self.confirms_at_once = False
        self._guards = None
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.refuse_confirmations(error)
        proofs, self._proofs = self._proofs, deque()
        for _, future in proofs:
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody may be waiting any more
        self.wake_waiters()

    def truncated(self) -> None:
        """The log was cut back (a follower's, to agree with its leader)."""
        end = self.log.log_end_offset
        self.high_watermark = min(self.high_watermark, end)
        self.undecided = deque(each for each in self.undecided if each[1] < end)
        self._unconfirmed_bytes = 0

    def _tell_waiters(self, size: int) -> None:
        is_stable = self.log.producers.first_unstable_offset is None and not self.undecided
        for waiter in tuple(self.waiters):
            waiter.more_bytes(size, is_stable=is_stable)

    def _tell_of_decision(self) -> None:
        for waiter in tuple(self.waiters):
            waiter.stable_offset_moved()

    def wake_waiters(self) -> None:
        for waiter in (*self.waiters, *self.replica_waiters):
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
            undecided = tuple(self.undecided)  # others may ask while the loop goes on
            first = min((first_offset for first_offset, _ in undecided), default=stable)
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
