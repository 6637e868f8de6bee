"""Visibility of transactions to consumers once they are decided."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.integration.transactions.producer import (
    TIMESTAMP,
    TransactionalProducer,
    fetch_committed,
    read_all,
    read_committed,
)
from tests.raw_client import Api, RawClient, eventually

from ottla.base.errors import ErrorCode
from ottla.testing.broker import BrokerProcess


@pytest.fixture
def producer(client: RawClient, topic: str) -> TransactionalProducer:
    client.create_topic(topic, 2)
    return TransactionalProducer(client).begin()


def test_an_open_transaction_hides_itself_and_what_is_behind_it(
    client: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    client.produce(topic, [(None, b"before", (), TIMESTAMP)])
    assert producer.produce(topic, b"inside") is ErrorCode.NONE
    client.produce(topic, [(None, b"behind", (), TIMESTAMP)])
    assert read_all(client, topic) == [b"before", b"inside", b"behind"]
    assert read_committed(client, topic) == [b"before"]
    answer = fetch_committed(client, topic)
    assert (answer.high_watermark, answer.last_stable_offset) == (3, 1)
    assert producer.end() is ErrorCode.NONE
    assert read_committed(client, topic) == [b"before", b"inside", b"behind"]
    assert fetch_committed(client, topic).last_stable_offset == 4


def test_aborted_transactions_are_listed_and_committed_ones_are_not(
    client: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    other = TransactionalProducer(client).begin()
    for name, who in ((b"a", producer), (b"b", other), (b"c", producer)):
        assert who.produce(topic, name) is ErrorCode.NONE
    assert producer.end(commit=False) is ErrorCode.NONE
    assert other.end() is ErrorCode.NONE
    answer = fetch_committed(client, topic)
    (aborted,) = answer.aborted_transactions
    assert aborted.first_offset == 0
    assert read_committed(client, topic) == [b"b"]
    assert client.fetch(topic).aborted_transactions is None


def test_the_last_stable_offset_is_the_latest_that_can_be_asked_for(
    client: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    def latest(isolation_level: int) -> int:
        asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        answer = client.call(
            Api.LIST_OFFSETS,
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[{"name": topic, "partitions": [asked]}],
        )
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    assert producer.produce(topic, b"a", b"b") is ErrorCode.NONE
    assert (latest(0), latest(1)) == (2, 0)
    assert producer.end() is ErrorCode.NONE
    assert (latest(0), latest(1)) == (3, 3)


class Waiting:
    """A read_committed fetch that waits in a thread of its own."""

    def __init__(self, broker: BrokerProcess, topic: str, offset: int, **more: Any) -> None:
        self.answer: Any = None
        self._client = RawClient(broker.port)
        self._arguments = (topic, offset, more)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        topic, offset, more = self._arguments
        self.answer = fetch_committed(self._client, topic, offset, max_wait_ms=20_000, **more)

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> Any:
        self._thread.join(20)
        self._client.close()
        assert self.answer is not None
        return self.answer


@pytest.mark.parametrize("min_bytes", [1, 2_000])
def test_a_waiting_fetch_is_woken_by_the_end_of_the_transaction_not_by_its_records(
    broker: BrokerProcess,
    client: RawClient,
    topic: str,
    producer: TransactionalProducer,
    min_bytes: int,
) -> None:
    assert producer.produce(topic, bytes(1_000)) is ErrorCode.NONE
    waiting = Waiting(broker, topic, 0, min_bytes=min_bytes)
    uncommitted = Waiting2(broker, topic)
    assert producer.produce(topic, bytes(2_000)) is ErrorCode.NONE
    uncommitted.join()
    assert waiting.is_waiting
    assert producer.end() is ErrorCode.NONE
    answer = waiting.join()
    assert len(answer.records) > 3_000
    assert answer.last_stable_offset == 3


class Waiting2(Waiting):
    """A read_uncommitted fetch that waits, to notice when the records have been written."""

    def _run(self) -> None:
        self.answer = self._client.fetch(self._arguments[0], 1, max_wait_ms=20_000)

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        super().__init__(broker, topic, 1)


def test_the_oldest_open_transaction_decides_how_far_can_be_read(
    client: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    others = [TransactionalProducer(client).begin() for _ in range(3)]
    writers = [producer, *others]
    for writer in writers:
        assert writer.produce(topic, writer.id.encode()) is ErrorCode.NONE
    stable = []
    for writer in (writers[1], writers[0], writers[3], writers[2]):
        assert writer.end() is ErrorCode.NONE
        stable.append(fetch_committed(client, topic).last_stable_offset)
    assert stable == [0, 2, 2, 8]


def test_describe_producers_returns_the_start_offset_of_an_open_transaction(
    client: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    client.produce(topic, [(None, b"before", (), TIMESTAMP)])

    def described() -> tuple[int, int, int]:
        topics = [{"name": topic, "partition_indexes": [0]}]
        answer = client.call(Api.DESCRIBE_PRODUCERS, 0, topics=topics)
        (state,) = answer.topics[0].partitions[0].active_producers
        return state.producer_epoch, state.coordinator_epoch, state.current_txn_start_offset

    assert producer.produce(topic, b"a") is ErrorCode.NONE
    assert described() == (0, -1, 1)
    assert producer.end() is ErrorCode.NONE
    assert described() == (1, 0, -1)


def test_a_transaction_may_write_to_many_partitions_at_once(
    client: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    contents = {(topic, 0): [b"a"], (topic, 1): [b"b"]}
    assert producer.produce_many(contents) == [0, 0]
    assert read_committed(client, topic, 0) == read_committed(client, topic, 1) == []
    assert producer.end() is ErrorCode.NONE
    assert read_committed(client, topic, 0) == [b"a"]
    assert read_committed(client, topic, 1) == [b"b"]


def test_a_retried_batch_of_the_open_transaction_is_not_written_twice(
    client: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    for _ in range(3):
        assert producer.produce(topic, b"once", base_sequence=0) is ErrorCode.NONE
    assert producer.end() is ErrorCode.NONE
    assert read_committed(client, topic) == [b"once"]


def test_a_topic_that_is_deleted_does_not_keep_its_transactions_from_ending(
    client: RawClient, topic: str, producer: TransactionalProducer
) -> None:
    assert producer.produce(topic, b"a") is ErrorCode.NONE
    assert client.delete_topic(topic) == 0
    assert producer.end() is ErrorCode.NONE
    eventually(lambda: producer.state().transaction_state, lambda s: s == "CompleteCommit")
