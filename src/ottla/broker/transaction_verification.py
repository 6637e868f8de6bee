"""Transaction verification: whether a producer may write to a partition (KIP-890).

A transactional batch may be appended only while the coordinator knows that the partition is part of
the transaction. Otherwise nobody would write a marker there, and the transaction would hang. The
version of the request decides what happens to a partition that is not part of it:

    operation        Produce   TxnOffsetCommit   a partition that is not part of the transaction
    DEFAULT_ERROR    to 10     to 3              INVALID_TXN_STATE
    GENERIC_ERROR    11        4                 TRANSACTION_ABORTABLE
    ADD_PARTITION    from 12   from 5            is added to it first

A producer that has already written to the partition in the same epoch, with its transaction still
open there, needs no verification: the marker that ends the transaction goes through the same
partition.

`verify_now` decides what needs no waiting. `verify` asks the coordinator of the transactional ID,
on this broker or another one (AddPartitionsToTxn, with `verify_only` or to add). In a cluster it
always asks, even if this broker is the coordinator, because its state counts only once it is
committed.

EndTxn is answered before its markers are written, so the next transaction of a producer often
starts while the previous one is being completed. A request to add a partition is then repeated
every `add.partitions.to.txn.retry.backoff.ms`, for `add.partitions.to.txn.retry.backoff.max.ms` in
total, before the client gets CONCURRENT_TRANSACTIONS. The coordinator holds each attempt for the
former time (`TransactionCoordinator.add_partitions`), so one attempt is usually enough.

A marker that ends the transaction may arrive between the verification and the append, and in
version 1 the next transaction has the same epoch. So each partition has a guard from the moment the
coordinator is asked, and a marker invalidates it (`Partition.acquire_guard`). The append calls
`check_guard`, which refuses an invalid guard with INVALID_TXN_STATE. If the marker arrived before
the coordinator's answer, it may have ended the previous transaction; the coordinator is then asked
again under a new guard."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from ottla.base.cluster import NO_LEADER
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition, partitions_by_topic
from ottla.broker.delayed_response import CLIENT_ERRORS
from ottla.broker.internal_topic import InternalTopic
from ottla.broker.partition import Partition, VerificationGuard
from ottla.broker.peers import Peers
from ottla.broker.ports import Configuration, HostedPartitions, NodeId, PartitionLeaders, TimeSource
from ottla.broker.transaction_coordinator import TRANSACTION_TOPIC
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.txn.events import (
    AddPartitionsRequested,
    PartitionCodes,
    TransactionEvent,
    VerifyRequested,
)
from ottla.core.txn.machine import EPOCH_BUMP_VERSION
from ottla.net.errors import ClientError
from ottla.wire import rpc


class UnverifiedHandling(Enum):
    """Handling of a partition that is not part of the transaction; see the table above."""

    DEFAULT_ERROR = "default"
    GENERIC_ERROR = "generic"
    ADD_PARTITION = "add"


def produce_operation(version: int) -> UnverifiedHandling:
    if version >= 12:
        return UnverifiedHandling.ADD_PARTITION
    return UnverifiedHandling.GENERIC_ERROR if version == 11 else UnverifiedHandling.DEFAULT_ERROR


def offset_commit_operation(version: int) -> UnverifiedHandling:
    if version >= 5:
        return UnverifiedHandling.ADD_PARTITION
    return UnverifiedHandling.GENERIC_ERROR if version == 4 else UnverifiedHandling.DEFAULT_ERROR


_NOT_VERIFIED = frozenset({
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
})  # fmt: skip
_CAN_BE_ADDED = frozenset({
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
})  # fmt: skip
"""Results of a verification after which the partition may still be added to the transaction."""
REQUEST_TIMEOUT_S = 30.0
_FIRST_TO_VERIFY = 4
_FIRST_TO_ADD = 5


class VerifyingCoordinator(Protocol):
    """The part of the transaction coordinator that verifies partitions."""

    @property
    def topic(self) -> InternalTopic: ...

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> ErrorCode: ...

    def submit(self, event: TransactionEvent) -> None: ...

    def add_partitions(self, event: AddPartitionsRequested) -> None: ...


class CoordinatorCluster(Protocol):
    """The connections to transaction coordinators on other brokers."""

    @property
    def coordinator_peers(self) -> Peers: ...


class VerificationPorts(
    Configuration, HostedPartitions, NodeId, PartitionLeaders, TimeSource, Protocol
):
    """The parts of a broker that verify transactions."""

    @property
    def transaction_coordinator(self) -> VerifyingCoordinator: ...

    @property
    def cluster(self) -> CoordinatorCluster | None: ...


class TransactionVerification:
    """The verification of one request's partitions."""

    __slots__ = (
        "_broker",
        "_guards",
        "_id",
        "_is_verifying",
        "_operation",
        "_producer",
        "keys",
        "rejected",
    )

    def __init__(
        self,
        broker: VerificationPorts,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        keys: Sequence[TopicPartition],
        operation: UnverifiedHandling,
    ) -> None:
        self._broker = broker
        self._id = transactional_id
        self._producer = producer
        self.keys = keys
        self._operation = operation
        self._guards: dict[TopicPartition, tuple[Partition, int, VerificationGuard]] = {}
        """Guard of each partition being verified, with the partition and its leader epoch."""
        self._is_verifying = False
        self.rejected: dict[TopicPartition, ErrorCode] = {}
        """Partitions that may not be written to, and the coordinator's error code."""

    # ----------------------------------------------------------------------------- verification

    def verify_now(self) -> bool:
        """Decide what can be decided without waiting. Returns False if `verify` must follow."""
        is_adding = self._operation is UnverifiedHandling.ADD_PARTITION
        broker = self._broker
        if not is_adding and not broker.config.transaction_partition_verification_enable:
            return True
        self._acquire_guards()
        if not self._guards:
            return True
        if broker.cluster is not None:
            return False
        for key in self._guards:
            code = broker.transaction_coordinator.verify(self._id, self._producer, key)
            if code != ErrorCode.NONE:
                self.rejected[key] = code
        return not (is_adding and _CAN_BE_ADDED.intersection(self.rejected.values()))

    def _acquire_guards(self) -> None:
        """Take a guard for each partition that must be verified with the coordinator."""
        producer_id, epoch = self._producer
        self._is_verifying = True
        self._guards.clear()
        for key in self.keys:
            partition = self._broker.partitions.get(key)
            if partition is None or not partition.is_leader:
                continue  # the append reports the error
            if not partition.log.producers.is_open(producer_id, epoch):
                guard = partition.acquire_guard(producer_id)
                self._guards[key] = partition, partition.leader_epoch, guard

    async def verify(self) -> None:
        """Ask the coordinator, repeatedly while the previous transaction is being completed."""
        config, clock = self._broker.config, self._broker.clock
        wait_ms = min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)
        backoff_s = config.add_partitions_to_txn_retry_backoff_ms / 1000
        deadline = clock.monotonic() + wait_ms / 1000
        while True:
            asked_at = clock.monotonic()
            await self._ask_coordinator()
            if self._operation is not UnverifiedHandling.ADD_PARTITION:
                return
            is_completing = ErrorCode.CONCURRENT_TRANSACTIONS in self.rejected.values()
            invalid = [key for key in self._guards if not self._is_guard_valid(key)]
            if not is_completing and not invalid:
                return
            if clock.monotonic() >= deadline:
                self.rejected |= dict.fromkeys(invalid, ErrorCode.CONCURRENT_TRANSACTIONS)
                return
            if is_completing:
                await asyncio.sleep(max(0.0, asked_at + backoff_s - clock.monotonic()))
            self._acquire_guards()

    async def _ask_coordinator(self) -> None:
        keys, coordinator = list(self._guards), self._coordinator
        if not keys:
            codes: dict[TopicPartition, ErrorCode] = {}
        elif coordinator is None:
            codes = dict.fromkeys(keys, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif coordinator == self._broker.node_id:
            codes = await self._ask_locally(keys)
        else:
            codes = await self._ask_broker(coordinator, keys)
        self.rejected = {key: code for key, code in codes.items() if code != ErrorCode.NONE}

    @property
    def _coordinator(self) -> int | None:
        """ID of the broker that coordinates the transactional ID, or None if it is unknown."""
        index = self._broker.transaction_coordinator.topic.partition_for(self._id)
        if index is None:
            return None
        leader = self._broker.leader_of(TopicPartition(TRANSACTION_TOPIC, index))
        return None if leader == NO_LEADER else leader

    async def _ask_locally(self, keys: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        token, partitions = _FutureToken(), frozenset(keys)
        coordinator = self._broker.transaction_coordinator
        if self._operation is UnverifiedHandling.ADD_PARTITION:
            coordinator.add_partitions(
                AddPartitionsRequested(
                    token, self._id, self._producer, partitions, client_version=EPOCH_BUMP_VERSION
                )
            )
        else:
            coordinator.submit(VerifyRequested(token, self._id, self._producer, partitions))
        body = await token.body
        if "errors" in body:
            return body["errors"]
        return dict.fromkeys(keys, body["error_code"])

    async def _ask_broker(
        self, coordinator: int, keys: list[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        cluster, is_adding = (
            self._broker.cluster,
            self._operation is UnverifiedHandling.ADD_PARTITION,
        )
        assert cluster is not None, "a standalone broker is its own coordinator"
        request = rpc.add_partitions_to_txn(
            transactions=[
                {
                    "transactional_id": self._id,
                    "producer_id": self._producer.id,
                    "producer_epoch": self._producer.epoch,
                    "verify_only": not is_adding,
                    "topics": [
                        {"name": name, "partitions": indexes}
                        for name, indexes in partitions_by_topic(keys).items()
                    ],
                }
            ]
        )
        try:
            response = await cluster.coordinator_peers.request(
                coordinator,
                request,
                REQUEST_TIMEOUT_S,
                min_version=_FIRST_TO_ADD if is_adding else _FIRST_TO_VERIFY,
            )
        except ClientError:
            return dict.fromkeys(keys, ErrorCode.NETWORK_EXCEPTION)
        if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            # As in Kafka: the producer has all permissions, but this broker is not recognized.
            return dict.fromkeys(keys, ErrorCode.INVALID_TXN_STATE)
        if response.error_code:
            return dict.fromkeys(keys, ErrorCode(response.error_code))
        codes = dict.fromkeys(keys, ErrorCode.NETWORK_EXCEPTION)
        for result in response.results_by_transaction:
            for topic in result.topic_results:
                for partition_result in topic.results_by_partition:
                    key = TopicPartition(topic.name, partition_result.partition_index)
                    codes[key] = ErrorCode(partition_result.partition_error_code)
        return codes

    def check_guard(self, key: TopicPartition) -> None:
        """Raise KafkaError if a marker has arrived since the coordinator was asked."""
        guarded = self._guards.get(key)
        if guarded is None:
            self._check_unguarded(key)
            return
        partition, leader_epoch, _ = guarded
        found = self._broker.partitions.get(key)
        if found is not partition or found.leader_epoch != leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self._is_guard_valid(key):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                "The transaction ended before the records could be appended.",
            )

    def _check_unguarded(self, key: TopicPartition) -> None:
        """Raise KafkaError if a partition without a guard should have been verified after all.

        While the coordinator was asked about others, this broker may have become the leader of this
        partition, or the marker of a transaction that was open here may have arrived."""
        partition = self._broker.partitions.get(key)
        if not self._is_verifying or partition is None:
            return
        if not partition.log.producers.is_open(*self._producer):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _is_guard_valid(self, key: TopicPartition) -> bool:
        """Return whether no marker has arrived, or the producer's transaction is open anyway."""
        partition, _, guard = self._guards[key]
        producer_id, epoch = self._producer
        return partition.is_guard_valid(producer_id, guard) or partition.log.producers.is_open(
            producer_id, epoch
        )

    # ----------------------------------------------------------------------------------- errors

    def produce_error(self, code: ErrorCode) -> KafkaError:
        """Return the error for a producer. Older producers retry only a few errors;
        NOT_ENOUGH_REPLICAS is one of them, and does not make them refresh their metadata."""
        is_adding = self._operation is UnverifiedHandling.ADD_PARTITION
        if code == ErrorCode.CONCURRENT_TRANSACTIONS and is_adding:
            return KafkaError(code)
        if code in _NOT_VERIFIED:
            return KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                "Unable to verify the partition has been added to the transaction. "
                f"Underlying error: {code.name}",
            )
        return self._error(code)

    def offset_commit_error(self, code: ErrorCode) -> KafkaError:
        """Return the error for TxnOffsetCommit."""
        is_adding = self._operation is UnverifiedHandling.ADD_PARTITION
        if code == ErrorCode.NETWORK_EXCEPTION or (
            code == ErrorCode.CONCURRENT_TRANSACTIONS and not is_adding
        ):
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._error(code)

    def _error(self, code: ErrorCode) -> KafkaError:
        if code == ErrorCode.PRODUCER_FENCED:
            return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if (
            code == ErrorCode.TRANSACTION_ABORTABLE
            and self._operation is UnverifiedHandling.DEFAULT_ERROR
        ):
            code = ErrorCode.INVALID_TXN_STATE
        return KafkaError(code, "The partition is not part of the transaction.")


class _FutureToken:
    """A token that turns the coordinator's reply into a future."""

    __slots__ = ("body",)

    def __init__(self) -> None:
        self.body: asyncio.Future[PartitionCodes] = asyncio.get_running_loop().create_future()

    def reply(self, body: PartitionCodes) -> None:
        if not self.body.done():
            self.body.set_result(body)

    def fail(self, error: KafkaError) -> None:
        self.reply({"error_code": CLIENT_ERRORS.get(error.code, error.code)})
