"""The transaction coordinator of a broker: the shards of `__transaction_state` and what they need.

Decisions are in core/txn. This module supplies the partitions, the clock, the requests and new
producer IDs, and writes the markers that decisions ask for. The topic is created when a client
first looks for a coordinator.

    EndTxn ─► decision, committed ─► response
                                 └─► markers to all partitions ─► all written ─► Complete, committed

A marker that cannot be written is retried until it can: the decision stands. A partition that no
longer exists needs none. Partitions led by other brokers get their markers by WriteTxnMarkers
(cluster_markers.py).

Markers carry the leader epoch of the shard's partition and belong to that epoch. Once the epoch has
changed, this broker stops its attempts, and the broker that loads the shard starts again. This
matters because in version 1 the next transaction of a producer has the same epoch as the previous
one, and a late response must not end it, too."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from ottla.base.cluster import TopicImage
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.cluster_markers import ClusterMarkers, MarkerCluster
from ottla.broker.coordinator import Coordinator
from ottla.broker.coordinator_runtime import RuntimeSettings, ShardRunner, ShardState
from ottla.broker.internal_topic import TopicCreator
from ottla.broker.log_limit import LogLimiter
from ottla.broker.ports import (
    Configuration,
    Flushing,
    HostedPartitions,
    LeadershipProofs,
    Metadata,
    NodeId,
    PartitionLeaders,
    PartitionLookup,
    Tasks,
    Threads,
    TimeSource,
)
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.transaction_markers import Marker, Markers, OffsetsCoordinator
from ottla.core.coordinator import ProducerIdAndEpoch, Token
from ottla.core.txn import machine
from ottla.core.txn.events import (
    AddPartitionsRequested,
    ListedTransactions,
    ListFilters,
    ListRequested,
    MarkersWritten,
    NewIdEvent,
    TimeoutPassed,
    TransactionEvent,
)
from ottla.core.txn.marker_responses import EXPECTED, Verdict, verdict_for
from ottla.core.txn.records import Transaction
from ottla.core.txn.settings import TransactionSettings
from ottla.core.txn.shard import TransactionShard, WriteMarkers

logger = logging.getLogger(__name__)

TRANSACTION_TOPIC = "__transaction_state"
MARKER_RETRY_S = 0.1
IDS_PER_YIELD = 500
"""Number of transactional IDs processed before the event loop does other work."""
_FoundTransaction = tuple[str, int]
"""A transactional ID to clean up, and when its transaction was last updated."""


class TransactionCoordinatorPorts(
    Configuration,
    Flushing,
    HostedPartitions,
    LeadershipProofs,
    Metadata,
    NodeId,
    PartitionLeaders,
    PartitionLookup,
    Tasks,
    Threads,
    TimeSource,
    Protocol,
):
    """The parts of a broker that the transaction coordinator uses, including its markers."""

    @property
    def controller(self) -> TopicCreator: ...

    @property
    def cluster(self) -> MarkerCluster | None: ...

    @property
    def group_coordinator(self) -> OffsetsCoordinator: ...

    @property
    def client_log(self) -> LogLimiter:
        """Rate-limited log for client behaviour that an operator should know about."""

    @property
    def producer_ids(self) -> ProducerIds: ...


class TransactionCoordinator(Coordinator):
    """The coordinator of the transactional IDs whose state is in partitions led by this broker."""

    def __init__(self, broker: TransactionCoordinatorPorts, markers: Markers | None = None) -> None:
        self._broker = broker
        config = broker.config
        self._markers = markers or ClusterMarkers(broker)
        super().__init__(
            broker,
            TRANSACTION_TOPIC,
            lambda: TransactionShard(TransactionSettings.of(config), _WriteMarkersToken(self)),
            RuntimeSettings(load_buffer_bytes=config.transaction_state_log_load_buffer_size),
        )
        self._log = LogLimiter(logger, broker.clock.monotonic)
        self._held: dict[str, list[AddPartitionsRequested]] = {}
        """Requests that wait until the previous transaction of their ID is complete."""
        self._timed_out: set[_FoundTransaction] = set()
        self._expired: set[_FoundTransaction] = set()

    # --------------------------------------------------------------------------- start and stop

    def start(self) -> None:
        config = self._broker.config
        self._tasks = [
            asyncio.ensure_future(self._repeat(each, interval_ms / 1000))
            for each, interval_ms in (
                (
                    self.abort_timed_out,
                    config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
                ),
                (
                    self.remove_expired,
                    config.transaction_remove_expired_transaction_cleanup_interval_ms,
                ),
            )
        ]

    def stop(self) -> None:
        super().stop()
        for transactional_id in list(self._held):
            self._release_held(transactional_id)

    def topic_deleted(self, topic: TopicImage) -> None:
        if topic.name == self.topic.name:
            self.runtime.close()

    # ------------------------------------------------------------------------------- for handlers

    def submit(self, event: TransactionEvent) -> None:
        """Submit an event about a transactional ID. Its token gets the response or the error."""
        self._submit(event.transactional_id, event)

    def add_partitions(self, event: AddPartitionsRequested) -> None:
        """Submit a request to add partitions to a transaction.

        While the producer's previous transaction is being completed, the request is held for up to
        `add.partitions.to.txn.retry.backoff.ms`. EndTxn is answered before the markers are written,
        so a producer with small transactions would otherwise be refused, and wait longer, each
        time.

        Once the markers have taken longer than `add.partitions.to.txn.retry.backoff.max.ms`,
        requests are not held any more. Brokers share a connection for the requests of many
        producers, and those queued after a held request wait, too."""
        transactional_id = event.transactional_id
        if not self._is_completing(transactional_id):
            self.submit(event)
            return
        held = self._held.get(transactional_id)
        if held is not None:
            held.append(event)
            return
        self._held[transactional_id] = [event]
        hold_s = self._broker.config.add_partitions_to_txn_retry_backoff_ms / 1000
        release = partial(self._release_held, transactional_id)
        self._timers.start(("held", transactional_id), hold_s, release)

    def _is_completing(self, transactional_id: str) -> bool:
        """Return whether the previous transaction's markers will probably be written soon."""
        try:
            known = self._shard(transactional_id).transactions.get(transactional_id)
        except KafkaError:
            return False
        if known is None or known.state not in machine.PREPARED:
            return False
        longest_ms = self._broker.config.add_partitions_to_txn_retry_backoff_max_ms
        return self._broker.clock.time_ms() - known.last_update_ms < longest_ms

    def _release_held(self, transactional_id: str) -> None:
        held = self._held.pop(transactional_id, None)
        if held is not None:
            self._timers.cancel(("held", transactional_id))
            for event in held:
                self.submit(event)

    async def submit_with_id(self, event: NewIdEvent) -> None:
        """Submit an event, with a new producer ID if it needs one. Raises KafkaError if no producer
        ID can be allocated."""
        if self.wants_producer_id(event):
            event.new_producer_id = await self._broker.producer_ids.next()
        self.submit(event)

    def wants_producer_id(self, event: NewIdEvent) -> bool:
        try:
            shard = self._shard(event.transactional_id)
        except KafkaError:
            return False
        return shard.needs_producer_id(event)

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> ErrorCode:
        """Return NONE if a partition is part of a producer's transaction, or the error. The state
        may not be committed yet."""
        try:
            known = self._shard(transactional_id).transactions.get(transactional_id)
            machine.verify_partition(known, producer, partition)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def list_transactions(
        self, filters: ListFilters, new_token: Callable[[], Token[ListedTransactions]]
    ) -> None:
        """Ask every shard for its transactions; each replies to a token of its own. A shard that is
        loading replies with an error."""
        self._submit_to_all(new_token, lambda token: ListRequested(token, filters))

    def _shard(self, transactional_id: str) -> TransactionShard:
        """Return the shard of a transactional ID, for reading. Raises KafkaError unless it is
        loaded."""
        runner = self.runtime.runner(self._partition_for(transactional_id))
        if runner is None or runner.state is not ShardState.ACTIVE:
            is_loading = runner is not None and runner.state is ShardState.LOADING
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR
            )
        assert isinstance(runner.shard, TransactionShard)
        return runner.shard

    # ------------------------------------------------------------------------------------ markers

    def write_markers(self, wanted: WriteMarkers) -> None:
        """Write the markers of a committed decision to every partition of the transaction."""
        if not wanted.partitions:
            self._all_written(wanted)
            return
        epoch = self._coordinator_epoch(wanted.transactional_id)
        self._write_to(wanted, epoch, set(wanted.partitions))

    def _coordinator_epoch(self, transactional_id: str) -> int:
        """Return the coordinator epoch, or -1 if this broker is not the coordinator."""
        index = self.topic.partition_for(transactional_id)
        partition = self._broker.partitions.get((TRANSACTION_TOPIC, -1 if index is None else index))
        return -1 if partition is None or not partition.is_leader else partition.leader_epoch

    def _is_wanted(self, wanted: WriteMarkers, epoch: int) -> bool:
        """Return whether these markers are still this broker's to write."""
        try:
            known = self._shard(wanted.transactional_id).transactions.get(wanted.transactional_id)
        except KafkaError:
            return False  # the broker that loads the partition next finds the decision
        return (
            known is not None
            and known.state in machine.PREPARED
            and wanted.producer == (known.producer_id, known.producer_epoch)
            and epoch == self._coordinator_epoch(wanted.transactional_id)
        )

    def _write_to(self, wanted: WriteMarkers, epoch: int, missing: set[TopicPartition]) -> None:
        if not self._is_wanted(wanted, epoch):
            return
        marker = Marker(wanted.producer, wanted.commit, epoch, wanted.client_version)
        unanswered, failed = set(missing), set[TopicPartition]()
        is_over = False

        def on_written(key: TopicPartition, error: KafkaError | None) -> None:
            nonlocal is_over
            unanswered.discard(key)
            verdict = Verdict.WRITTEN if error is None else self._verdict_for(wanted, key, error)
            if verdict is Verdict.RETRY:
                failed.add(key)
            is_over = is_over or verdict is Verdict.STOP
            if unanswered or is_over or not self._is_wanted(wanted, epoch):
                return
            if failed:
                retry = partial(self._write_to, wanted, epoch, failed)
                self._timers.start(("markers", wanted.transactional_id), MARKER_RETRY_S, retry)
            else:
                self._all_written(wanted)

        for key in sorted(missing):
            self._markers.write(key, marker, on_written)

    def _verdict_for(self, wanted: WriteMarkers, key: TopicPartition, error: KafkaError) -> Verdict:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            is_gone = self._broker.leader_of(key) is None
            return Verdict.WRITTEN if is_gone else Verdict.RETRY
        verdict = verdict_for(error.code)
        if verdict is not Verdict.RETRY or error.code not in EXPECTED:
            self._broker.client_log.log(
                logging.WARNING,
                f"{wanted.transactional_id}: {key} returned {error.code.name} for a transaction "
                f"marker of producer {wanted.producer.id} with epoch {wanted.producer.epoch}: "
                f"{verdict.value}",
            )
        return verdict

    def _all_written(self, wanted: WriteMarkers) -> None:
        """Complete the transaction in the next loop iteration: the runner may be writing now."""
        asyncio.get_running_loop().call_soon(self._complete, wanted)

    def _complete(self, wanted: WriteMarkers) -> None:
        self.submit(MarkersWritten(None, wanted.transactional_id, wanted.producer))
        # The runner applies the record at the end of this loop iteration. Requests that arrive
        # before that are held, too, and must be released after it.
        asyncio.get_running_loop().call_soon(self._release_held, wanted.transactional_id)

    # ----------------------------------------------------------------------------------- clean-up

    async def _repeat(self, work: Callable[[], Awaitable[None]], interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await work()
            except Exception:
                logger.exception("Could not clean up transactions; retrying later.")

    async def abort_timed_out(self) -> None:
        """Abort transactions that have been open for longer than their timeout."""
        self._timed_out = await self._submit_found(
            lambda shard, now_ms: list(shard.timed_out(now_ms)), self._timed_out
        )

    async def remove_expired(self) -> None:
        """Remove transactional IDs that have not been used for `transactional.id.expiration.ms`."""
        self._expired = await self._submit_found(
            lambda shard, now_ms: list(shard.expired(now_ms)), self._expired
        )

    async def _submit_found(
        self,
        find: Callable[[TransactionShard, int], Sequence[TransactionEvent]],
        logged: set[_FoundTransaction],
    ) -> set[_FoundTransaction]:
        """Submit the events that `find` returns for each shard, and log those not in `logged`.

        While replicas are missing, the records cannot be written, and each call finds the same
        transactions again.

        Returns:
            The transactions found, to pass to the next call.
        """
        found: set[_FoundTransaction] = set()
        for runner in self.runtime.runners:
            if runner.state is not ShardState.ACTIVE:
                continue
            assert isinstance(runner.shard, TransactionShard)
            now_ms = self._broker.clock.time_ms()
            for number, event in enumerate(find(runner.shard, now_ms)):
                if number % IDS_PER_YIELD == IDS_PER_YIELD - 1:
                    await asyncio.sleep(0)
                known = runner.shard.transactions.get(event.transactional_id)
                if known is None:
                    continue
                each = event.transactional_id, known.last_update_ms
                found.add(each)
                if each not in logged:
                    self._log.log(logging.INFO, _cleanup_message(event, known, now_ms))
                await self._submit_found_one(runner, event)
        return found

    async def _submit_found_one(self, runner: ShardRunner, event: TransactionEvent) -> None:
        if isinstance(event, TimeoutPassed) and self.wants_producer_id(event):
            try:
                event.new_producer_id = await self._broker.producer_ids.next()
            except KafkaError as error:
                message = (
                    f"The transaction of transactional id {event.transactional_id!r} remains "
                    f"open, because no producer ID could be allocated: {error.message}"
                )
                self._log.log(logging.WARNING, message)
                return
        runner.submit(event)


class _WriteMarkersToken:
    """The token to which a shard sends the markers it wants written (core/txn/shard.py)."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def reply(self, body: WriteMarkers) -> None:
        self._coordinator.write_markers(body)

    def fail(self, error: KafkaError) -> None:
        """Do nothing: the decision could not be written, or the coordinator stops."""


def _cleanup_message(event: TransactionEvent, known: Transaction, now_ms: int) -> str:
    """Return the log message for a transaction that timed out or an ID that expired."""
    if isinstance(event, TimeoutPassed):
        return (
            f"Aborting the transaction of transactional id {event.transactional_id!r}: it has been "
            f"open for {(now_ms - known.start_ms) / 1000:.1f} s, longer than its timeout of "
            f"{known.timeout_ms / 1000:g} s. Producer {known.producer_id} with epoch "
            f"{known.producer_epoch} is fenced."
        )
    return (
        f"Removing transactional id {event.transactional_id!r}: it has not been used for "
        f"{(now_ms - known.last_update_ms) / 1000:.0f} s (transactional.id.expiration.ms)."
    )
