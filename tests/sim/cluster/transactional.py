"""A transactional producer for a simulated cluster, at the level of single requests.

It finds leaders and coordinators, and retries retriable errors."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.broker.broker import Broker
from ottla.broker.partition import Partition
from ottla.core.txn import machine as transactions
from ottla.core.txn.events import InitRequested
from ottla.core.txn.records import Transaction
from ottla.net.connection import Connection
from ottla.net.errors import ClientError
from ottla.testing.simulation.cluster import BROKER_PORT, SimulatedCluster
from ottla.wire.api import Api
from ottla.wire.records.builder import build_batch
from ottla.wire.request import Request

T = TypeVar("T")
TOPIC = "t"
RETRIABLE = frozenset({
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
})  # fmt: skip
BACKOFF_S = 0.05
TRIES = 2_000
GROUP, TRANSACTION = 0, 1
"""Coordinator types of FindCoordinator."""


@contextmanager
def first_epoch(epoch: int) -> Iterator[None]:
    """Start new transactional IDs at this producer epoch, as if they had been used for long."""
    begin_producer = transactions.begin_producer

    def begin(known: Transaction | None, event: InitRequested, now_ms: int) -> Transaction:
        begun = begin_producer(known, event, now_ms)
        return begun._replace(producer_epoch=epoch) if known is None else begun

    transactions.begin_producer = begin
    try:
        yield
    finally:
        transactions.begin_producer = begin_producer


@contextmanager
def last_epoch(epoch: int) -> Iterator[None]:
    """Make producer epochs overflow after this one, so that a short run sees many overflows."""
    usual, transactions.LAST_EPOCH = transactions.LAST_EPOCH, epoch
    try:
        yield
    finally:
        transactions.LAST_EPOCH = usual


class TransactionalCluster:
    """Three brokers, and a topic with one partition led by each."""

    def __init__(self, seed: int = 1, **overrides: str) -> None:
        named = {name.replace("__", "."): value for name, value in overrides.items()}
        named["transaction.state.log.num.partitions"] = "3"
        self.cluster = SimulatedCluster(seed, 3, named)
        self.client = self.cluster.process("client")
        self._connections: dict[tuple[int, bool], Connection] = {}
        """Connections by broker. Produce has its own, because a broker serves the requests of a
        connection one after another."""
        self.cluster.start()
        topic = {"name": TOPIC, "num_partitions": 3, "replication_factor": 3}
        self.run(self.ask(1, Api.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 5_000}))
        self.until(lambda: self.leaders() == {1, 2, 3})

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the client's process."""
        result: T = self.cluster.scheduler.run(coroutine, self.client)
        return result

    def until(self, look: Callable[[], bool], timeout_s: float = 20.0) -> None:
        scheduler = self.cluster.scheduler
        deadline = scheduler.now + timeout_s
        scheduler.run_until(lambda: look() or scheduler.now > deadline)
        assert look(), f"not in {timeout_s} s"

    def broker(self, number: int) -> Broker:
        broker = self.cluster.machines[number].broker
        assert broker is not None
        return broker

    def leaders(self) -> set[int]:
        return {self.leader(TopicPartition(TOPIC, index)) for index in range(3)}

    def leader(self, key: TopicPartition) -> int:
        """Return the leader according to the running brokers, or 0 if there is none."""
        for machine in self.cluster.ready:
            assert machine.broker is not None
            partition = machine.broker.partitions.get(key)
            if partition is not None and partition.is_leader:
                return machine.number
        return 0

    def led(self, key: TopicPartition) -> Partition | None:
        number = self.leader(key)
        return self.broker(number).partitions[key] if number else None

    async def ask(self, node: int, api: Api, body: dict[str, Any], **options: Any) -> Any:
        """Send a request and return the response, or None if there is none."""
        try:
            key = (node, api == Api.PRODUCE)
            connection = self._connections.get(key)
            if connection is None or not connection.is_open:
                connection = await Connection.open(f"broker-{node}", BROKER_PORT, timeout_s=1.0)
                self._connections[key] = connection
            return await connection.request(Request(api, body), 3.0, **options)
        except ClientError:
            return None


class World(Protocol):
    """The environment of a producer."""

    def leader(self, key: TopicPartition) -> int: ...

    async def ask(self, node: int, api: Api, body: dict[str, Any], **options: Any) -> Any: ...


class Producer:
    """A transactional producer that speaks version 1 or version 2 of the protocol."""

    def __init__(self, world: World, id: str, *, version: int, topic: str = TOPIC) -> None:
        self._world = world
        self._topic = topic
        self.id = id
        self.version = version
        self.producer_id = self.epoch = -1
        self._sequences: dict[int, int] = {}
        self._known_coordinators: dict[str, int] = {}
        """Group -> its last known coordinator, so that offsets are sent without a look-up."""
        self.refusals: Counter[ErrorCode] = Counter()
        """Retriable errors received so far."""

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def coordinator(self) -> int:
        return await self._find_coordinator(TRANSACTION, self.id)

    async def _find_coordinator(self, kind: int, key: str) -> int:
        for _ in range(TRIES):
            for node in (1, 2, 3):
                body = {"key_type": kind, "coordinator_keys": [key]}
                answer = await self._world.ask(node, Api.FIND_COORDINATOR, body, min_version=4)
                if answer is not None and not answer.coordinators[0].error_code:
                    found: int = answer.coordinators[0].node_id
                    return found
            await asyncio.sleep(BACKOFF_S)
        raise AssertionError("no coordinator")

    async def _coordinated(self, api: Api, body: dict[str, Any], **options: Any) -> Any:
        answer = None
        for _ in range(TRIES):
            answer = await self._world.ask(await self.coordinator(), api, body, **options)
            if answer is not None and not self._may_retry(self._code(answer)):
                return answer
            await asyncio.sleep(BACKOFF_S)
        raise AssertionError(f"{api.name} is not granted: {answer}")

    def _may_retry(self, code: ErrorCode) -> bool:
        if code in RETRIABLE:
            self.refusals[code] += 1
        return code in RETRIABLE

    @staticmethod
    def _code(answer: Any) -> ErrorCode:
        if hasattr(answer, "results_by_topic_v3_and_below") and not answer.error_code:
            reported = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
            return ErrorCode(reported.partition_error_code)
        return ErrorCode(answer.error_code)

    async def begin(self, timeout_ms: int = 60_000) -> None:
        body = {"transactional_id": self.id, "transaction_timeout_ms": timeout_ms}
        body |= {"producer_id": -1, "producer_epoch": -1}
        answer = await self._coordinated(Api.INIT_PRODUCER_ID, body)
        assert answer.error_code == 0
        self._become(answer.producer_id, answer.producer_epoch)

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self._sequences.clear()

    async def add(self, *partitions: int) -> ErrorCode:
        """Add partitions to the transaction. Version 1 only: in version 2 the leaders do it."""
        body = {f"v3_and_below_{name}": value for name, value in self.identity.items()}
        body["v3_and_below_topics"] = [{"name": self._topic, "partitions": list(partitions)}]
        return self._code(await self._coordinated(Api.ADD_PARTITIONS_TO_TXN, body, max_version=3))

    async def produce(self, partition: int, value: bytes) -> ErrorCode:
        sequence = self._sequences.get(partition, 0)
        code = ErrorCode.NONE
        for _ in range(TRIES):
            code = await self.try_to_produce(partition, value, sequence)
            if not self._may_retry(code):
                self._sequences[partition] = sequence + 1
                return code
            await asyncio.sleep(BACKOFF_S)
        raise AssertionError(f"the record is not taken: {code.name}")

    async def try_to_produce(self, partition: int, value: bytes, sequence: int = 0) -> ErrorCode:
        batch = build_batch(
            [(None, value, (), 0)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = {"index": partition, "records": batch}
        body = {
            "transactional_id": self.id,
            "acks": -1,
            "timeout_ms": 2_000,
            "topic_data": [{"name": self._topic, "partition_data": [data]}],
        }
        leader = self._world.leader(TopicPartition(self._topic, partition))
        version = 12 if self.version == 2 else 11
        answer = await self._world.ask(
            leader or 1, Api.PRODUCE, body, min_version=version, max_version=version
        )
        if answer is None:
            return ErrorCode.NETWORK_EXCEPTION
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def commit_offset(self, group: str, offset: int) -> ErrorCode:
        """Commit an offset of partition 0 in the transaction. Version 2 only."""
        partition = {"partition_index": 0, "committed_offset": offset}
        body = {
            **self.identity,
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "topics": [{"name": self._topic, "partitions": [partition]}],
        }
        code = ErrorCode.NONE
        for _ in range(TRIES):
            node = self._known_coordinators.pop(group, 0)
            node = node or await self._find_coordinator(GROUP, group)
            answer = await self._world.ask(
                node, Api.TXN_OFFSET_COMMIT, body, min_version=5, max_version=5
            )
            code = ErrorCode.NETWORK_EXCEPTION
            if answer is not None:
                code = ErrorCode(answer.topics[0].partitions[0].error_code)
            if not self._may_retry(code):
                self._known_coordinators[group] = node
                return code
            await asyncio.sleep(BACKOFF_S)
        raise AssertionError(f"the offset is not committed: {code.name}")

    async def stable_offset(self, group: str) -> int | None:
        """Return the group's offset of partition 0, or None if it is not known or not stable."""
        topics = [{"name": self._topic, "partition_indexes": [0]}]
        body = {"group_id": group, "topics": topics, "require_stable": True}
        node = await self._find_coordinator(GROUP, group)
        answer = await self._world.ask(node, Api.OFFSET_FETCH, body, min_version=7, max_version=7)
        if answer is None or answer.error_code:
            return None
        found = answer.topics[0].partitions[0]
        offset: int = found.committed_offset
        return None if found.error_code else offset

    async def end(self, *, commit: bool) -> ErrorCode:
        version = 5 if self.version == 2 else 3
        body = {**self.identity, "committed": commit}
        answer = await self._coordinated(
            Api.END_TXN, body, min_version=version, max_version=version
        )
        if self.version == 2 and not answer.error_code:
            self._become(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)
