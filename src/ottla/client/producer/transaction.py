"""A transactional producer's protocol with its transaction coordinator.

    phase        records    transitions
    NEW          rejected   init → READY
    READY        rejected   begin → OPEN
    OPEN         accepted   commit → COMMITTING, abort → ABORTING; abortable failure → FAILED
    FAILED       rejected   abort → ABORTING
    COMMITTING   rejected   success → READY; abortable failure → FAILED; retry commit on timeout
    ABORTING     rejected   success → READY; retry abort on timeout
    FATAL        rejected   none, close the producer: it was fenced or is not authorized

There are two protocols, selected by the cluster's `transaction.version`. Up to version 1, a
partition is added to the transaction before its first record is sent (AddPartitionsToTxn,
AddOffsetsToTxn). From version 2 on (KIP-890), Produce and TxnOffsetCommit add partitions
implicitly, and every commit or abort bumps the epoch, so that nothing of one transaction can leak
into the next. With the older protocol, the producer requests a new epoch after a transaction in
which something failed (KIP-360).

A failure is abortable, and the next transaction may succeed, unless the error code is fatal to this
producer. After an abortable failure, batches that are not sent yet fail at once with
TransactionAborted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.base.types import TopicPartition
from ottla.client.cluster import Cluster, CoordinatorType, Purpose
from ottla.client.errors import (
    ClientError,
    KafkaTimeout,
    TransactionAborted,
    TransactionFailed,
    error_for,
)
from ottla.client.producer.accumulator import PartitionQueue
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.identity import Identity
from ottla.client.producer.transaction_coordinator import (
    ProducerIdentity,
    TransactionCoordinator,
    error_code,
)
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages.txn_offset_commit import (
        TxnOffsetCommitRequestPartitionDict,
        TxnOffsetCommitResponse,
    )

logger = logging.getLogger(__name__)

FEATURE = "transaction.version"
FIRST_IMPLICIT = 2
"""First level of the feature at which partitions are added implicitly."""
FIRST_BUMPING_END_TXN = 5
LAST_EXPLICIT_OFFSET_COMMIT = 4
FIRST_OFFSET_COMMIT_WITH_MEMBER = 3

_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)
_ABORTABLE_IN_PRODUCE = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE})
"""Error codes that are fatal from the coordinator but only abortable from a partition's leader,
where they may concern the previous transaction."""


class Phase(Enum):
    NEW = "has not been initialized"
    READY = "has no open transaction"
    OPEN = "has an open transaction"
    FAILED = "has a transaction that must be aborted"
    COMMITTING = "is committing a transaction"
    ABORTING = "is aborting a transaction"
    FATAL = "failed and must be closed"


class GroupMember(NamedTuple):
    """The fields of a consumer's `group_metadata()`."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetToCommit(NamedTuple):
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


PositionT = TypeVar("PositionT", covariant=True)


class ConsumerIdentity(Protocol):
    """A consumer's identity in its group, as its `group_metadata()` returns it."""

    @property
    def group_id(self) -> str: ...

    @property
    def generation_id(self) -> int: ...

    @property
    def member_id(self) -> str: ...

    @property
    def group_instance_id(self) -> str | None: ...


class ConsumerPositions(Protocol[PositionT]):
    """A consumer, as `send_offsets` uses it; `position` of an asyncio consumer is awaited."""

    def assignment(self) -> set[TopicPartition]: ...

    def group_metadata(self) -> ConsumerIdentity: ...

    def position(self, tp: TopicPartition, /) -> PositionT: ...


class CommittableOffset(Protocol):
    """An offset to commit, such as a consumer's `OffsetAndMetadata`."""

    @property
    def offset(self) -> int: ...

    @property
    def metadata(self) -> str: ...


Offsets: TypeAlias = Mapping[TopicPartition, int | CommittableOffset]
"""Offset of each partition. An object may also have a `leader_epoch`."""


class TransactionalIdentity(Identity):
    def __init__(self, config: ProducerConfig, cluster: Cluster) -> None:
        super().__init__(config, cluster)
        self.phase = Phase.NEW
        self.failure: ClientError | None = None
        """Why the transaction must be aborted or the producer must be closed."""
        self.on_phase: Callable[[], None] = lambda: None
        self.fail_unsent: Callable[[ClientError], None] = lambda error: None
        self._id = config.transactional_id
        self._coordinator = TransactionCoordinator(cluster, self._id, config.max_block_ms)
        self._is_implicit = False
        self._added: set[TopicPartition] = set()
        self._to_add: dict[TopicPartition, None] = {}
        self._adding: asyncio.Task[None] | None = None
        self._groups: set[str] = set()
        self._has_begun = False
        """Whether the coordinator may know of this transaction."""
        self._must_bump = False

    @property
    def is_old_transaction(self) -> bool:  # type: ignore[override]
        return not self._is_implicit

    # --------------------------------------------------------------------------------- phases

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.on_phase()
        self.on_change()

    def _require(self, *phases: Phase) -> None:
        if self.phase in phases:
            return
        if self.phase is Phase.FATAL:
            assert self.failure is not None
            raise self.failure
        if self.phase is Phase.FAILED:
            raise self._abort_error()
        raise UserError(f"The producer {self.phase.value}.")

    def send_error(self) -> BaseException | None:
        """Return the exception with which `send` rejects a record now, or None."""
        if self.phase is Phase.OPEN:
            return None
        if self.phase is Phase.FATAL:
            return self.failure
        if self.phase is Phase.FAILED:
            return self._abort_error()
        return UserError(f"The producer {self.phase.value}. Call begin_transaction() first.")

    def _abort_error(self) -> TransactionAborted:
        aborted = TransactionAborted(f"the transaction must be aborted: {self.failure}")
        aborted.__cause__ = self.failure
        return aborted

    def _fail(self, error: KafkaError, *, in_produce: bool = False) -> ClientError:
        """Record a failure, change the phase, and return the exception for the caller to raise."""
        is_fatal = error.code in _FATAL and not (in_produce and error.code in _ABORTABLE_IN_PRODUCE)
        if not is_fatal:
            if self.phase in (Phase.OPEN, Phase.COMMITTING):
                self.failure = _as_client_error(error)
                self._enter(Phase.FAILED)
            return self._abort_error()
        failure = _as_client_error(error)
        if not failure.fatal and error.code not in (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ):
            failure = TransactionFailed(str(error), code=error.code)
            failure.__cause__ = error
        self.failure = failure
        self._enter(Phase.FATAL)
        self.on_fatal(failure)
        return failure

    # ----------------------------------------------------------------------------- operations

    async def init(self) -> None:
        """Obtain the producer ID, which fences other producers with the same transactional ID.

        The coordinator aborts a transaction that such a producer left open."""
        self._require(Phase.NEW)
        try:
            await self._init_producer()
        except ClientError as error:
            if error.code in _FATAL:
                raise self._fail(error) from error
            raise
        self._enter(Phase.READY)

    async def begin(self) -> None:
        self._require(Phase.READY)
        await self._determine_protocol()
        self.failure = None
        self._has_begun = self._must_bump = False
        self._enter(Phase.OPEN)

    def adopt(self, producer: ProducerIdentity) -> None:
        """Continue a transaction with the ID and epoch that another process obtained for it.

        Partitions are added explicitly, so that the same ID and epoch remain valid until that
        process, or another one, ends the transaction."""
        self._require(Phase.NEW)
        self.sequences.set_producer_id(producer.producer_id, producer.producer_epoch)
        self._enter(Phase.OPEN)

    async def commit(self, flush: Callable[[], Awaitable[object]]) -> None:
        self._require(Phase.OPEN, Phase.COMMITTING)
        self._enter(Phase.COMMITTING)
        await flush()
        self._require(Phase.COMMITTING)
        await self._end(committed=True)

    async def abort(self, wait_for_requests: Callable[[], Awaitable[object]]) -> None:
        self._require(Phase.OPEN, Phase.FAILED, Phase.ABORTING)
        self._must_bump = self._must_bump or self.phase is Phase.FAILED
        self._enter(Phase.ABORTING)
        self.fail_unsent(TransactionAborted("the transaction was aborted"))
        await wait_for_requests()
        self._require(Phase.ABORTING)
        await self._end(committed=False)

    async def _end(self, *, committed: bool) -> None:
        if self._adding is not None:
            await asyncio.gather(self._adding, return_exceptions=True)
        if self._has_begun:
            try:
                await self._end_txn(committed)
            except KafkaTimeout:
                raise  # the outcome is unknown, so the caller may repeat the call
            except ClientError as error:
                raise self._fail(error) from error
        self._added.clear()
        self._to_add.clear()
        self._groups.clear()
        for queue in self._unresolved:
            queue.sequences.unresolved_sequence = None
        self._unresolved.clear()
        self._enter(Phase.READY)

    async def _end_txn(self, committed: bool) -> None:
        if self._is_implicit:
            request = rpc.end_txn(
                transactional_id=self._id,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.producer_epoch,
                committed=committed,
            )
            response = await self._coordinator.call(
                request, error_code, min_version=FIRST_BUMPING_END_TXN
            )
            if response.producer_id >= 0:
                self.sequences.set_producer_id(response.producer_id, response.producer_epoch)
            return
        await self._coordinator.end(self._producer, committed=committed)
        if self._must_bump:
            await self._init_producer(bumped=self._producer)

    async def _init_producer(self, *, bumped: ProducerIdentity | None = None) -> None:
        made = await self._coordinator.init_producer(
            self._config.transaction_timeout_ms, bumped=bumped
        )
        self.sequences.set_producer_id(made.producer_id, made.producer_epoch)

    async def _determine_protocol(self) -> None:
        """Determine which protocol the cluster uses. It may have been upgraded meanwhile."""
        kind = CoordinatorType.TRANSACTION

        async def ask() -> int:
            node = await self._cluster.coordinator(kind, self._id)
            try:
                connection = await self._cluster.connection(node, Purpose.COORDINATION)
            except ClientError:
                self._cluster.forget_coordinator(kind, self._id)
                raise
            return connection.finalized_features.get(FEATURE, 0)

        level = await self._cluster.retrying(
            ask, timeout_ms=self._config.max_block_ms, what="reaching the transaction coordinator"
        )
        self._is_implicit = level >= FIRST_IMPLICIT

    # -------------------------------------------------------------------------------- offsets

    async def send_offsets(self, offsets: Offsets, group: GroupMember) -> None:
        """Commit offsets of a consumer group as part of the transaction."""
        self._require(Phase.OPEN)
        if not offsets:
            return
        try:
            if not self._is_implicit and group.group_id not in self._groups:
                request = rpc.add_offsets_to_txn(
                    transactional_id=self._id,
                    producer_id=self._producer.producer_id,
                    producer_epoch=self._producer.producer_epoch,
                    group_id=group.group_id,
                )
                await self._coordinator.call(request, error_code)
                self._groups.add(group.group_id)
            self._has_begun = True
            await self._commit_offsets(offsets, group)
        except ClientError as error:
            raise self._fail(error) from error

    async def _commit_offsets(self, offsets: Offsets, group: GroupMember) -> None:
        topics: dict[str, list[TxnOffsetCommitRequestPartitionDict]] = {}
        for (topic, partition), offset in offsets.items():
            entry = OffsetToCommit(offset) if isinstance(offset, int) else offset
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": entry.offset,
                    "committed_leader_epoch": getattr(entry, "leader_epoch", -1),
                    "committed_metadata": entry.metadata,
                }
            )
        request = rpc.txn_offset_commit(
            transactional_id=self._id,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
            group_id=group.group_id,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[{"name": name, "partitions": each} for name, each in topics.items()],
        )
        await self._coordinator.call(
            request,
            _first_partition_error,
            coordinator=(CoordinatorType.GROUP, group.group_id),
            min_version=FIRST_OFFSET_COMMIT_WITH_MEMBER if group.member_id else 0,
            max_version=None if self._is_implicit else LAST_EXPLICIT_OFFSET_COMMIT,
        )

    # -------------------------------------------------------------------------------- sending

    def prepare(self) -> bool:
        if self.phase in (Phase.FAILED, Phase.ABORTING):
            self.fail_unsent(TransactionAborted("the transaction was aborted"))
        if self.phase not in (Phase.OPEN, Phase.COMMITTING):
            return False
        for queue in list(self._unresolved):
            if not self.sequences.resolve(queue.sequences):
                self._fail(KafkaTimeout("it is unknown whether some records were written"))
                return False
            if queue.sequences.unresolved_sequence is None:
                del self._unresolved[queue]
        if self._to_add and self._adding is None:
            self._adding = asyncio.create_task(self._add_partitions())
        return True

    def may_send(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        if not super().may_send(queue, batch):
            return False
        partition = TopicPartition(queue.topic, queue.partition)
        if self._is_implicit or partition in self._added:
            self._has_begun = True
            return True
        if partition not in self._to_add:
            self._to_add[partition] = None
            self.on_change()
        return False

    async def _add_partitions(self) -> None:
        """Add all waiting partitions to the transaction in one request."""
        wanted = list(self._to_add)
        self._has_begun = True
        try:
            await self._coordinator.add_partitions(self._producer, wanted)
            self._added.update(wanted)
        except ClientError as error:
            self._fail(error)
        finally:
            self._adding = None
            for added in wanted:
                self._to_add.pop(added, None)
        self.on_change()

    def failed(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: ClientError,
        *,
        surely_not_written: bool,
    ) -> None:
        self.sequences.failed(
            queue.sequences, batch, error.code, surely_not_written=surely_not_written
        )
        if queue.sequences.unresolved_sequence is not None:
            self._unresolved[queue] = None
        self._must_bump = self._must_bump or batch.has_sequence
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            self._fail(error, in_produce=True)

    @property
    def _producer(self) -> ProducerIdentity:
        sequences = self.sequences
        return ProducerIdentity(self._id, sequences.producer_id, sequences.producer_epoch)

    async def close(self) -> None:
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)


def _as_client_error(error: KafkaError) -> ClientError:
    return error if isinstance(error, ClientError) else error_for(error.code, str(error))


def _first_partition_error(response: TxnOffsetCommitResponse) -> int:
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code:
                return partition.error_code
    return 0
