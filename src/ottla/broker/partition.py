"""A partition replica on this broker: its log, its role, and the requests waiting on it.

Consumers may read below the high watermark, and a write with acks=all is acknowledged once the
high watermark has passed it. How the high watermark is computed depends on the role:

    standalone  the log end offset; with `log.flush.acks.all` the recovery point (everything below
                it is synced), so that a power cut cannot lose what a consumer has read
    leader      the lowest offset that every member of the ISR has (core.replication.leadership);
                this broker's own log counts as it would on a standalone broker
    follower    the leader's high watermark, limited to the end of the local log

Only a leader, or a standalone broker, appends records that clients send."""

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


class DelayedFetch(Protocol):
    """A fetch that waits for more data (a delayed fetch)."""

    def access_changed(self) -> None:
        """Respond at once if the client may not read all of the partitions any more."""

    def more_bytes(self, count: int, *, is_stable: bool) -> None:
        """Count bytes that became available.

        Args:
            count: Number of bytes.
            is_stable: Whether read_committed consumers can read them too, because no open
                transaction holds back the last stable offset.
        """

    def stable_offset_moved(self) -> None:
        """Check again after a transaction ended: the last stable offset may have advanced, even if
        nothing was appended."""

    def wake(self) -> None:
        """Complete the fetch now: the partition was removed, its role or log start offset changed,
        or a proof of leadership is wanted."""


class VerificationGuard:
    """A transaction verification in flight for one producer and partition (KIP-890).

    A guard lives as long as one of the requests that verify the partition holds it. A transaction
    marker of the producer invalidates it, because the answer may refer to the transaction that has
    just ended."""

    __slots__ = ("__weakref__",)


class Partition:
    """A replica of a partition, with its role, its high watermark and its waiting requests."""

    __slots__ = (
        "_high_watermark_waits",
        "_guards",
        "_proofs",
        "_uncommitted_bytes",
        "appended_bytes",
        "commits_on_append",
        "high_watermark",
        "is_leader",
        "key",
        "leader_epoch",
        "leadership",
        "log",
        "needs_records",
        "offline_reason",
        "delayed_replica_fetches",
        "unreplicated_markers",
        "waits_for_sync",
        "delayed_fetches",
    )

    def __init__(self, log: Log, leader_epoch: int, *, waits_for_sync: bool) -> None:
        self.log = log
        self.key: TopicPartition = log.partition
        self.leader_epoch = leader_epoch
        self.waits_for_sync = waits_for_sync
        self.needs_records = needs_records(log.config)
        self.high_watermark = log.log_end_offset
        self.is_leader = True
        self.leadership: Leadership | None = None
        """State of a leader in a cluster; None on a follower and on a standalone broker."""
        self.commits_on_append = not waits_for_sync
        """Whether an append advances the high watermark at once: on a standalone broker that does
        not wait for syncs."""
        self.delayed_fetches: dict[DelayedFetch, None] = {}
        """Delayed fetches in order of arrival; the one that has waited longest is served first."""
        self.delayed_replica_fetches: dict[DelayedFetch, None] = {}
        """Delayed fetches of followers, which wait for the log end offset, not for the high
        watermark."""
        self.offline_reason: str | None = None
        """Set when a sync or a truncation failed and the contents of the disk are unknown. Nothing
        more is appended until the broker has been restarted and has recovered the log."""
        self.unreplicated_markers: deque[tuple[int, int]] = deque()
        """(first offset, marker offset) of transactions that have ended but whose markers are not
        yet below the high watermark, so that the markers may still be lost. Ordered by marker."""
        self.appended_bytes = 0
        self._uncommitted_bytes = 0
        self._high_watermark_waits: deque[tuple[int, asyncio.Future[None]]] = deque()
        """(offset, future that completes when the high watermark reaches it)."""
        self._proofs: deque[tuple[float, asyncio.Future[None]]] = deque()
        """(start time, future that completes once this broker has proved that it led after it)."""
        self._guards: WeakValueDictionary[int, VerificationGuard] | None = None
        """Verification guards by producer ID."""

    def use_config(self, config: TopicConfig) -> None:
        self.log.config = config
        self.needs_records = needs_records(config)

    def append(self, batch: ReadableBuffer, header: BatchHeader, now_ms: int) -> AppendResult:
        """Append a batch from a client, or a transaction marker.

        Args:
            batch: The encoded batch.
            header: Its decoded header.
            now_ms: Current time in milliseconds.

        Returns:
            The offsets of the batch; those of the first append if it is a duplicate.

        Raises:
            KafkaError: The partition is offline, or the log refused the batch.
        """
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason)
        if header.is_control:
            return self._append_marker(batch, header, now_ms)
        result = self.log.append(batch, header, self.leader_epoch, now_ms)
        if not result.is_duplicate:
            size = header.size
            self.appended_bytes += size
            if self.commits_on_append:
                self.high_watermark = result.last_offset + 1
                if self.delayed_fetches:
                    self._notify_more_bytes(size)
            else:
                self._appended(size)
        return result

    def _append_marker(
        self, marker: ReadableBuffer, header: BatchHeader, now_ms: int
    ) -> AppendResult:
        first_offset = self.log.producers.txn_first_offset(header.producer_id)
        result = self.log.append(marker, header, self.leader_epoch, now_ms)
        self.appended_bytes += header.size
        if self._guards is not None:
            self._guards.pop(header.producer_id, None)
        if not self.commits_on_append:
            if first_offset is not None:
                self.unreplicated_markers.append((first_offset, result.last_offset))
            self._appended(header.size)
        else:
            self.high_watermark = result.last_offset + 1
            if self.delayed_fetches:
                self._notify_more_bytes(header.size)
                self._notify_stable_offset()
        return result

    def append_replicated(self, batch: ReadableBuffer, header: BatchHeader, now_ms: int) -> None:
        """Append a batch that was fetched from the leader. Raises KafkaError."""
        if self.offline_reason is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reason)
        first_offset = None
        if header.is_control:
            first_offset = self.log.producers.txn_first_offset(header.producer_id)
        self.log.append_as_follower(batch, header, now_ms)
        self.appended_bytes += header.size
        self._uncommitted_bytes += header.size
        if first_offset is not None:
            self.unreplicated_markers.append((first_offset, header.last_offset))

    # ---------------------------------------------------------------------------- transactions

    def acquire_guard(self, producer_id: int) -> VerificationGuard:
        """Return the guard to hold from verification to append (see `is_guard_valid`)."""
        if self._guards is None:
            self._guards = WeakValueDictionary()
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = self._guards[producer_id] = VerificationGuard()
        return guard

    def is_guard_valid(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Return whether `guard` is still valid: the producer has written no marker and this
        replica has not lost leadership since the guard was issued."""
        return self._guards is not None and self._guards.get(producer_id) is guard

    # --------------------------------------------------------------------------- high watermark

    def _appended(self, size: int) -> None:
        self._uncommitted_bytes += size
        for fetch in tuple(self.delayed_replica_fetches):
            fetch.more_bytes(size, is_stable=True)
        if self.leadership is not None and not self.waits_for_sync:
            self.update_high_watermark()

    def update_high_watermark(self) -> None:
        """Recompute the high watermark after a change to a replica's log or to the ISR."""
        leadership = self.leadership
        if leadership is None:
            return
        own_end = self.log.recovery_point if self.waits_for_sync else self.log.log_end_offset
        if leadership.advance(own_end):
            self._advance_high_watermark(leadership.high_watermark)

    def synced_to(self, offset: int) -> None:
        """Advance the high watermark after everything below `offset` was synced to disk."""
        if self.leadership is not None:
            self.update_high_watermark()
        elif self.is_leader:
            self._advance_high_watermark(offset)

    def follow_high_watermark(self, offset: int) -> None:
        """Adopt the leader's high watermark, as far as the local log reaches."""
        self._advance_high_watermark(min(offset, self.log.log_end_offset))

    def _advance_high_watermark(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        size, self._uncommitted_bytes = self._uncommitted_bytes, 0
        has_markers = False
        while self.unreplicated_markers and self.unreplicated_markers[0][1] < offset:
            self.unreplicated_markers.popleft()
            has_markers = True
        while self._high_watermark_waits and self._high_watermark_waits[0][0] <= offset:
            _, future = self._high_watermark_waits.popleft()
            if not future.done():
                future.set_result(None)
        if self.delayed_fetches:
            self._notify_more_bytes(size)
            if has_markers:
                self._notify_stable_offset()

    def wait_for_high_watermark(self, offset: int) -> asyncio.Future[None]:
        """Return a future that completes when the high watermark reaches `offset`. It fails with
        KafkaError if this replica loses leadership or a required sync fails first."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.high_watermark >= offset:
            future.set_result(None)
        else:
            # A retry of an older batch may ask for a lower offset than the futures before it. It
            # waits for theirs, so that the queue stays sorted.
            last = self._high_watermark_waits[-1][0] if self._high_watermark_waits else offset
            self._high_watermark_waits.append((max(offset, last), future))
        return future

    def go_offline(self, reason: str) -> None:
        """Refuse further appends: the contents of the disk are unknown until a restart."""
        self.offline_reason = reason

    def fail_waiting_produces(self, error: KafkaError) -> None:
        """Fail all futures of `wait_for_high_watermark`."""
        waiting, self._high_watermark_waits = self._high_watermark_waits, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # mark it as retrieved: the request may have timed out

    # -------------------------------------------------------------------- proof of leadership

    def wait_for_proof(self, now: float) -> asyncio.Future[None]:
        """Return a future that completes once this broker has proved that it led at `now` or later.

        A leader without a lease proves it by its followers: when every member of the ISR has
        fetched from it since `now`, none of them follows another leader, and without them no other
        leader can have committed anything. The future fails with KafkaError if this replica loses
        leadership first."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._proofs.append((now, future))
        self.followers_fetched()
        for fetch in tuple(self.delayed_replica_fetches):
            fetch.wake()
        return future

    @property
    def awaits_proof(self) -> bool:
        """Whether to answer followers' fetches at once, so that they fetch again soon."""
        return bool(self._proofs)

    def followers_fetched(self) -> None:
        if self._proofs:
            leadership = self.leadership
            self.leadership_proved(
                float("inf") if leadership is None else leadership.followed_since()
            )

    def leadership_proved(self, moment: float) -> None:
        """Complete the proofs requested before `moment`, when this broker is known to have led."""
        while self._proofs and self._proofs[0][0] < moment:
            _, future = self._proofs.popleft()
            if not future.done():
                future.set_result(None)

    # ------------------------------------------------------------------------------------ roles

    @property
    def in_sync_count(self) -> int:
        """Size of the committed ISR; 1 on a standalone broker."""
        return 1 if self.leadership is None else len(self.leadership.isr)

    def check_in_sync(self) -> None:
        """Raise NOT_ENOUGH_REPLICAS if the ISR is smaller than `min.insync.replicas`.

        A standalone broker ignores `min.insync.replicas`: it has the only replica there is."""
        leadership, min_insync = self.leadership, self.log.config.min_insync_replicas
        if leadership is not None and not leadership.has_min_isr(min_insync):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.key} has {len(leadership.isr)} in-sync replicas, min.insync.replicas is "
                f"{min_insync}",
            )

    def lead(self, leadership: Leadership) -> None:
        """Become the leader. Waiting fetches are woken, because the leader epoch has changed."""
        self.is_leader = True
        self.leadership = leadership
        self.leader_epoch = leadership.leader_epoch
        self.commits_on_append = False
        self.update_high_watermark()
        self.wake_delayed_fetches()

    def follow(self, leader_epoch: int) -> None:
        """Become a follower, or wait for a leader to be elected."""
        self.is_leader = False
        self.leadership = None
        self.leader_epoch = leader_epoch
        self.commits_on_append = False
        self._guards = None
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.fail_waiting_produces(error)
        proofs, self._proofs = self._proofs, deque()
        for _, future in proofs:
            if not future.done():
                future.set_exception(error)
                future.exception()  # mark it as retrieved: the request may have timed out
        self.wake_delayed_fetches()

    def truncated(self) -> None:
        """Adjust the high watermark after the log was truncated to match the leader's."""
        end = self.log.log_end_offset
        self.high_watermark = min(self.high_watermark, end)
        self.unreplicated_markers = deque(
            each for each in self.unreplicated_markers if each[1] < end
        )
        self._uncommitted_bytes = 0

    def _notify_more_bytes(self, size: int) -> None:
        is_stable = (
            self.log.producers.first_unstable_offset is None and not self.unreplicated_markers
        )
        for fetch in tuple(self.delayed_fetches):
            fetch.more_bytes(size, is_stable=is_stable)

    def _notify_stable_offset(self) -> None:
        for fetch in tuple(self.delayed_fetches):
            fetch.stable_offset_moved()

    def wake_delayed_fetches(self) -> None:
        for fetch in (*self.delayed_fetches, *self.delayed_replica_fetches):
            fetch.wake()

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: every transaction below it is decided, and its marker is below
        the high watermark."""
        log, stable = self.log, self.high_watermark
        unstable = log.producers.first_unstable_offset
        if unstable is not None:
            # Retention may have deleted the beginning of a transaction that is still open.
            stable = min(max(unstable, log.log_start_offset), stable)
        if self.unreplicated_markers:
            markers = tuple(self.unreplicated_markers)  # a copy, since other threads may call this
            first = min((first_offset for first_offset, _ in markers), default=stable)
            stable = min(max(first, log.log_start_offset), stable)
        return stable

    def readable_to(self, *, committed_only: bool) -> int:
        return self.last_stable_offset if committed_only else self.high_watermark

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the newest leader epoch that is not after `epoch`.

        Returns (-1, -1) if no such epoch is known. The current epoch ends at the log end offset,
        even if it has no record yet."""
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    def check_leader_epoch(self, epoch: int) -> None:
        """Raise KafkaError if a client's leader epoch is older or newer than ours (KIP-320). -1
        means that the client did not send one."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.key} has leader epoch {self.leader_epoch}, but the request has the older "
                f"epoch {epoch}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.key} has leader epoch {self.leader_epoch}, but the request has the newer "
            f"epoch {epoch}",
        )
