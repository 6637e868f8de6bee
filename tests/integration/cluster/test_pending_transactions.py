"""Producers that continue before the markers of their last transaction are written.

They run on three brokers. EndTxn is answered once the decision is committed; the markers follow.
Requests sent in between are answered as Apache Kafka 4.3.1 does, and never with a fatal error.
The tests send single requests in version 2 of the protocol, because real clients are too slow to
hit that gap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any

import pytest
from tests.integration.cluster.cluster_of_processes import ClusterOfProcesses, wait_for
from tests.integration.transactions.producer import TransactionalProducer
from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode
from ottla.core.txn.machine import LAST_EPOCH
from ottla.net.connection import Connection
from ottla.wire import rpc

E = ErrorCode
TRIES = 30
TRANSACTIONS = 50
BUMPERS = 40
GROUP, TRANSACTION = 0, 1
MOVING = (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS)


class Clients:
    """A producer's connections to both of its coordinators and to the leader of a partition."""

    def __init__(self, cluster: ClusterOfProcesses, topic: str, id: str) -> None:
        self._stack = ExitStack()
        self._cluster = cluster
        self._topic = topic
        self.group = f"group-{topic}"
        self._keys = {TRANSACTION: id, GROUP: self.group}
        self._coordinators = {kind: self._find(key, kind) for kind, key in self._keys.items()}
        self.producer = TransactionalProducer(self._coordinators[TRANSACTION], id)
        leader = cluster.brokers[cluster.leader(topic)]
        self._leader = self._stack.enter_context(RawClient(leader.port))
        wait_for(lambda: self.producer.init() is E.NONE, "producer id")

    def _find(self, key: str, kind: int) -> RawClient:
        def find() -> Any:
            with RawClient(self._cluster.brokers[1].port) as client:
                found = client.call(Api.FIND_COORDINATOR, 3, key=key, key_type=kind)
            return None if found.error_code else found

        found = wait_for(find, "coordinator")
        return self._stack.enter_context(RawClient(found.port, found.host))

    def close(self) -> None:
        self._stack.close()

    @property
    def coordinator_port(self) -> tuple[str, int]:
        host, port = self._coordinators[TRANSACTION]._socket.getpeername()[:2]
        return host, port

    def commit_offset(self, offset: int) -> ErrorCode:
        producer = self.producer
        return self._ask(GROUP, lambda: producer.commit_offset(self.group, self._topic, offset))

    def produce(self, value: bytes) -> ErrorCode:
        self.producer.client = self._leader
        return self.producer.produce(self._topic, value)

    def end(self, *, commit: bool, **more: Any) -> ErrorCode:
        return self._ask(TRANSACTION, lambda: self.producer.end(commit, **more))

    def _ask(self, kind: int, ask: Callable[[], ErrorCode]) -> ErrorCode:
        """Ask a coordinator, and the next one while leaders move back to preferred replicas."""
        codes: list[ErrorCode] = []

        def is_answered() -> bool:
            self.producer.client = self._coordinators[kind]
            codes.append(ask())
            if codes[-1] not in MOVING:
                return True
            self._coordinators[kind] = self._find(self._keys[kind], kind)
            return False

        wait_for(is_answered, "answer of a coordinator")
        return codes[-1]


_numbers = count()


@pytest.fixture
def clients(cluster: ClusterOfProcesses, topic: str) -> Iterator[Clients]:
    cluster.create_topic(topic)
    clients = Clients(cluster, topic, f"pending-{topic}-{next(_numbers)}")
    wait_for(lambda: clients.commit_offset(0) is E.NONE, "group coordinator")
    wait_for(lambda: clients.end(commit=True) is E.NONE, "first transaction")
    yield clients
    clients.close()


def test_an_end_before_the_markers_are_written_is_retried_and_not_fenced(clients: Clients) -> None:
    seen = set()
    for offset in range(TRIES):
        before = clients.producer.identity_as_producer()
        assert until_complete(partial(clients.commit_offset, offset)) is E.NONE
        assert clients.end(commit=True) is E.NONE
        code = clients.end(commit=False)
        seen.add(code)
        assert code in (E.NONE, E.CONCURRENT_TRANSACTIONS)
        if code is E.CONCURRENT_TRANSACTIONS:
            after = clients.producer.identity_as_producer()
            again = partial(clients.end, commit=True, producer_epoch=before.epoch)
            code = until_complete(again)
            assert code is E.NONE, "the first end, sent again"
            assert clients.producer.identity_as_producer() == after
            assert until_complete(lambda: clients.end(commit=False)) is E.NONE
    assert E.CONCURRENT_TRANSACTIONS in seen, "no try was quick enough"


def until_complete(ask: Callable[[], ErrorCode]) -> ErrorCode:
    """Repeat the request and return the first error code other than CONCURRENT_TRANSACTIONS."""
    answers: list[ErrorCode] = []

    def is_answered() -> bool:
        answers.append(ask())
        return answers[-1] is not E.CONCURRENT_TRANSACTIONS

    wait_for(is_answered, "complete transaction")
    return answers[-1]


def test_the_producer_id_after_an_epoch_overflow_can_be_used_at_once(clients: Clients) -> None:
    producer = clients.producer
    asyncio.run(use_up_epochs(*clients.coordinator_port, producer.id))
    wait_for(lambda: producer.init() is E.NONE and producer.epoch == LAST_EPOCH - 1, "last epoch")
    first = producer.producer_id
    assert clients.commit_offset(1) is E.NONE
    assert clients.end(commit=True) is E.NONE
    assert producer.producer_id != first
    assert producer.epoch == 0
    assert until_complete(lambda: clients.commit_offset(2)) is E.NONE
    assert until_complete(lambda: clients.end(commit=True)) is E.NONE


async def use_up_epochs(host: str, port: int, id: str) -> None:
    """Initialise the producer again and again until its epoch is close to the last one."""
    request = rpc.init_producer_id(
        transactional_id=id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    epoch = 0

    async def bump() -> None:
        nonlocal epoch
        connection = await Connection.open(host, port, timeout_s=10.0)
        while epoch < LAST_EPOCH - 2 - BUMPERS:
            answer = await connection.request(request, 10.0)
            epoch = max(epoch, answer.producer_epoch)
        connection.close()

    await asyncio.gather(*(bump() for _ in range(BUMPERS)))


def test_small_transactions_follow_each_other_without_a_refusal(clients: Clients) -> None:
    wait_for(lambda: clients.produce(b"first") is E.NONE, "leader")
    assert until_complete(lambda: clients.end(commit=True)) is E.NONE
    codes, began = [], time.monotonic()
    for number in range(TRANSACTIONS):
        code = clients.produce(b"%d" % number)
        codes.append(code)
        if code is E.CONCURRENT_TRANSACTIONS:  # a busy machine took longer than the broker waits
            wait_for(lambda: clients.produce(b"again") is E.NONE, "produce")
        assert clients.end(commit=True) is E.NONE
    assert codes.count(E.NONE) > 0.8 * TRANSACTIONS, f"in {time.monotonic() - began:.1f} s: {codes}"
    assert set(codes) <= {E.NONE, E.CONCURRENT_TRANSACTIONS}
