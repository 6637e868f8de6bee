"""Whether a producer may write to partitions in its transaction (KIP-890).

A transactional batch may be written to a partition only while the coordinator knows that the
partition is part of the transaction: else nobody would write a marker there, and the transaction
would hang for ever. What the client's version of a request says about it:

    operation        Produce   TxnOffsetCommit   a partition that is not part of the transaction
    DEFAULT_ERROR    to 10     to 3              INVALID_TXN_STATE
    GENERIC_ERROR    11        4                 TRANSACTION_ABORTABLE
    ADD_PARTITION    from 12   from 5            is added to it first

A producer that has written to the partition in the same epoch, and whose transaction is still open
there, needs no look: the marker that ends it comes through the partition too.

`check` looks and does not wait; between it and the append nothing else may happen. Where the
coordinator is another broker, it is asked by AddPartitionsToTxn. That takes time, and a marker that
comes meanwhile makes the answer worthless: the partition keeps a guard per producer that is being
asked about, and a marker takes it away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from ottla.base.cluster import NO_LEADER
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.core.coordinator import Body, Producer
from ottla.core.txn.events import AddPartitionsRequested
from ottla.core.txn.machine import EPOCH_BUMP_VERSION
from ottla.net.errors import ClientError
from ottla.wire.api import Api

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

FIRST_BATCHED = 4
"""The first version of AddPartitionsToTxn that is for brokers."""


class Operation(Enum):
    DEFAULT_ERROR = "default"
    GENERIC_ERROR = "generic"
    ADD_PARTITION = "add"


def produce_operation(version: int) -> Operation:
    if version >= 12:
        return Operation.ADD_PARTITION
    return Operation.GENERIC_ERROR if version == 11 else Operation.DEFAULT_ERROR


def offset_commit_operation(version: int) -> Operation:
    if version >= 5:
        return Operation.ADD_PARTITION
    return Operation.GENERIC_ERROR if version == 4 else Operation.DEFAULT_ERROR


_NOT_VERIFIED = frozenset({
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip


class Admission:
    """One request's partitions."""

    __slots__ = ("_broker", "_guards", "_id", "_keys", "_operation", "_producer")

    def __init__(
        self,
        broker: Broker,
        transactional_id: str,
        producer: Producer,
        keys: Sequence[TopicPartition],
        operation: Operation,
    ) -> None:
        self._broker = broker
        self._id = transactional_id
        self._producer = producer
        self._keys = keys
        self._operation = operation
        self._guards: dict[TopicPartition, object] = {}
        """Of partitions that a coordinator elsewhere has admitted."""

    def check(self) -> dict[TopicPartition, ErrorCode]:
        """Those that may not be written to now, and why, in the coordinator's words."""
        if not self._is_wanted:
            return {}
        refused: dict[TopicPartition, ErrorCode] = {}
        producer_id, epoch = self._producer
        for key in self._keys:
            partition = self._broker.partitions.get(key)
            if partition is None or partition.log.producers.is_open(producer_id, epoch):
                continue  # the append says what is wrong, if anything is
            if key in self._guards:
                if partition.verifying.get(producer_id) is not self._guards[key]:
                    refused[key] = ErrorCode.CONCURRENT_TRANSACTIONS
                continue
            code = self._broker.transaction_coordinator.verify(self._id, self._producer, key)
            if code != ErrorCode.NONE:
                refused[key] = code
        return refused

    @property
    def _is_wanted(self) -> bool:
        config = self._broker.config
        is_adding = self._operation is Operation.ADD_PARTITION
        return is_adding or config.transaction_partition_verification_enable

    def can_add(self, refused: dict[TopicPartition, ErrorCode]) -> bool:
        """Whether partitions are missing that the coordinator can be asked to add, or whether
        there is a coordinator elsewhere to be asked."""
        if self._coordinator_elsewhere() is not None:
            return True
        return self._operation is Operation.ADD_PARTITION and any(
            code == ErrorCode.TRANSACTION_ABORTABLE for code in refused.values()
        )

    async def add(
        self, refused: dict[TopicPartition, ErrorCode]
    ) -> dict[TopicPartition, ErrorCode]:
        """Have them added, or verified. Returns those that may not be written to all the same."""
        coordinator = self._coordinator_elsewhere()
        if coordinator is not None:
            return await self._ask(coordinator, refused)
        token = _Answer()
        self._broker.transaction_coordinator.submit(
            AddPartitionsRequested(
                token,
                self._id,
                self._producer,
                frozenset(refused),
                client_version=EPOCH_BUMP_VERSION,
            )
        )
        code = await token.code
        if code != ErrorCode.NONE:
            return dict.fromkeys(refused, code)
        return self.check()

    # ------------------------------------------------------------------- a coordinator elsewhere

    def _coordinator_elsewhere(self) -> int | None:
        """The broker that coordinates the transaction, if it is not this one."""
        coordinator = self._broker.transaction_coordinator
        index, topic = coordinator.partition_for(self._id), coordinator.topic
        if self._broker.cluster is None or index is None or topic is None:
            return None
        leader = topic.partitions[index].leader
        return None if leader in (NO_LEADER, self._broker.node_id) else leader

    async def _ask(
        self, coordinator: int, asked: dict[TopicPartition, ErrorCode]
    ) -> dict[TopicPartition, ErrorCode]:
        cluster, producer_id = self._broker.cluster, self._producer.id
        assert cluster is not None
        for key in asked:
            partition = self._broker.partitions[key]
            # Another request of the same producer may be asking: a marker concerns both.
            self._guards[key] = partition.verifying.setdefault(producer_id, object())
        try:
            answer = await cluster.peers.request(
                coordinator,
                Api.ADD_PARTITIONS_TO_TXN,
                self._question(asked),
                min_version=FIRST_BATCHED,
            )
        except ClientError:
            self._guards.clear()
            return dict.fromkeys(asked, ErrorCode.NETWORK_EXCEPTION)
        codes = _codes(answer)
        refused = {
            key: codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
            for key in asked
            if codes.get(key) != ErrorCode.NONE
        }
        refused = {**self.check(), **refused}
        for key, guard in self._guards.items():
            found = self._broker.partitions.get(key)
            if found is not None and found.verifying.get(producer_id) is guard:
                del found.verifying[producer_id]
        return refused

    def _question(self, asked: Iterable[TopicPartition]) -> dict[str, Any]:
        topics: dict[str, list[int]] = {}
        for key in asked:
            topics.setdefault(key.topic, []).append(key.partition)
        transaction = {
            "transactional_id": self._id,
            "producer_id": self._producer.id,
            "producer_epoch": self._producer.epoch,
            "verify_only": self._operation is not Operation.ADD_PARTITION,
            "topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
        }
        return {"transactions": [transaction]}

    # ---------------------------------------------------------------------------------- answers

    def produce_error(self, code: ErrorCode) -> KafkaError:
        """What a producer is told. Older ones know few errors that they should retry;
        NOT_ENOUGH_REPLICAS is one, and makes them ask for no new metadata."""
        is_adding = self._operation is Operation.ADD_PARTITION
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
        is_adding = self._operation is Operation.ADD_PARTITION
        if code == ErrorCode.NETWORK_EXCEPTION or (
            code == ErrorCode.CONCURRENT_TRANSACTIONS and not is_adding
        ):
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._error(code)

    def _error(self, code: ErrorCode) -> KafkaError:
        if code == ErrorCode.PRODUCER_FENCED:
            return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        if code == ErrorCode.TRANSACTION_ABORTABLE and self._operation is Operation.DEFAULT_ERROR:
            code = ErrorCode.INVALID_TXN_STATE
        return KafkaError(code, "The partition is not part of the transaction.")


def _codes(answer: Any) -> dict[TopicPartition, ErrorCode]:
    if answer.error_code:
        return {}
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for transaction in answer.results_by_transaction
        for topic in transaction.topic_results
        for each in topic.results_by_partition
    }


class _Answer:
    __slots__ = ("code",)

    def __init__(self) -> None:
        self.code: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def reply(self, body: Body) -> None:
        self.code.set_result(body["error_code"])

    def fail(self, error: KafkaError) -> None:
        self.code.set_result(error.code)
