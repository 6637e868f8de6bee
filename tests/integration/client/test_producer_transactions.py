"""Transactions of Ottla's producer, in both protocols, read by librdkafka with read_committed."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from ottla import (
    AsyncProducer,
    Consumer,
    Producer,
    ProducerFenced,
    RecordTooLarge,
    TopicPartition,
    TransactionAborted,
)
from ottla.base.errors import UserError
from ottla.client.producer import transaction
from ottla.testing.broker import BrokerProcess

TIMEOUT_S = 30
_ids = count(1)


@pytest.fixture(params=["implicit", "explicit"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the protocol; "explicit" is the one for clusters with transaction.version 1."""
    if request.param == "explicit":
        monkeypatch.setattr(transaction, "FIRST_IMPLICIT", 99)
    return str(request.param)


@pytest.fixture
def transactional_id() -> str:
    return f"transactional-{next(_ids)}"


def committed(broker: BrokerProcess, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return the values that a consumer reads up to the end."""
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return found
        found.append(message.value())


def test_committed_is_seen_and_aborted_is_not(
    broker: BrokerProcess, topic: str, transactional_id: str, protocol: str
) -> None:
    with Producer(broker.bootstrap, transactional_id=transactional_id) as producer:
        with producer.transaction():
            producer.send(topic, b"one")
            producer.send(topic, b"two")
        with pytest.raises(ZeroDivisionError), producer.transaction():  # noqa: PT012
            producer.send(topic, b"lost").result(TIMEOUT_S)
            raise ZeroDivisionError
        with producer.transaction():
            pass
        producer.begin_transaction()
        producer.send(topic, b"dropped")
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"three")
        producer.begin_transaction()
        producer.send(topic, b"open").result(TIMEOUT_S)
        assert committed(broker, topic) == [b"one", b"two", b"three"]
    # Closing the producer aborted the open transaction.
    assert committed(broker, topic) == [b"one", b"two", b"three"]
    assert b"lost" in committed(broker, topic, "read_uncommitted")


def test_many_transactions_one_after_another(
    broker: BrokerProcess, topic: str, transactional_id: str, protocol: str
) -> None:
    expected = []
    with Producer(broker.bootstrap, transactional_id=transactional_id, batch_size=100) as producer:
        for number in range(20):
            producer.begin_transaction()
            for index in range(10):
                producer.send(topic, b"%d-%d" % (number, index))
            if number % 3:
                producer.commit_transaction()
                expected += [b"%d-%d" % (number, index) for index in range(10)]
            else:
                producer.abort_transaction()
    assert committed(broker, topic) == expected


def test_a_second_producer_fences_the_first(
    broker: BrokerProcess, topic: str, transactional_id: str, protocol: str
) -> None:
    first = Producer(broker.bootstrap, transactional_id=transactional_id)
    first.begin_transaction()
    first.send(topic, b"first").result(TIMEOUT_S)
    with Producer(broker.bootstrap, transactional_id=transactional_id) as second:
        with second.transaction():
            second.send(topic, b"second")
        with pytest.raises(ProducerFenced) as fenced:
            first.commit_transaction()
        assert fenced.value.fatal
        with pytest.raises(ProducerFenced):
            first.send(topic, b"more")
        first.close()
        with second.transaction():
            second.send(topic, b"third")
    assert committed(broker, topic) == [b"second", b"third"]


def test_a_fenced_producer_learns_it_in_the_block_too(
    broker: BrokerProcess, topic: str, transactional_id: str, protocol: str
) -> None:
    with (
        Producer(broker.bootstrap, transactional_id=transactional_id) as first,
        Producer(broker.bootstrap, transactional_id=transactional_id),
        pytest.raises(ProducerFenced),
        first.transaction(),
    ):
        first.send(topic, b"late").exception(TIMEOUT_S)
    assert committed(broker, topic) == []


def test_a_record_that_fails_makes_the_transaction_abort_and_the_next_succeeds(
    transactional_id: str, protocol: str
) -> None:
    overrides = {"message.max.bytes": "2000"}
    with (
        BrokerProcess(overrides=overrides) as broker,
        Producer(broker.bootstrap, transactional_id=transactional_id) as producer,
    ):
        with pytest.raises(TransactionAborted) as aborted, producer.transaction():  # noqa: PT012
            producer.send("t", b"good")
            assert isinstance(producer.send("t", bytes(5000)).exception(TIMEOUT_S), RecordTooLarge)
            with pytest.raises(TransactionAborted):
                producer.send("t", b"too late")
        assert isinstance(aborted.value.__cause__, RecordTooLarge)
        assert not aborted.value.fatal
        with producer.transaction():
            producer.send("t", b"next")
        assert committed(broker, "t") == [b"next"]


def test_offsets_are_committed_with_the_transaction(
    broker: BrokerProcess, topic: str, transactional_id: str, protocol: str
) -> None:
    source, group = f"{topic}-source", f"group-{topic}"
    with Producer(broker.bootstrap) as filling:
        for number in range(10):
            filling.send(source, b"%d" % number)
    tp = TopicPartition(source, 0)
    with (
        Consumer(
            broker.bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
        ) as consumer,
        Producer(broker.bootstrap, transactional_id=transactional_id) as producer,
    ):
        consumer.subscribe([source])
        records = []
        while len(records) < 10:
            records += consumer.poll(1.0)
        with pytest.raises(ZeroDivisionError), producer.transaction():  # noqa: PT012
            producer.send(topic, b"lost")
            producer.send_offsets(consumer)
            raise ZeroDivisionError
        assert consumer.committed(tp)[tp] is None
        with producer.transaction():
            for record in records:
                producer.send(topic, record.value)
            producer.send_offsets(consumer)
        found = consumer.committed(tp)[tp]
        assert found is not None
        assert found.offset == 10
        with producer.transaction():
            producer.send_offsets({tp: 7}, f"{group}-other")
    assert committed(broker, topic) == [b"%d" % number for number in range(10)]


def test_calls_that_need_a_transaction_fail_without_one(
    broker: BrokerProcess, topic: str, transactional_id: str
) -> None:
    with Producer(broker.bootstrap, transactional_id=transactional_id) as producer:
        with pytest.raises(UserError, match="begin"):
            producer.send(topic, b"")
        with pytest.raises(UserError, match="no open transaction"):
            producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(UserError, match="open"):
            producer.begin_transaction()
    with Producer(broker.bootstrap) as plain, pytest.raises(UserError, match="transactional_id"):
        plain.begin_transaction()


def test_transactions_with_tables_in_asyncio(
    broker: BrokerProcess, topic: str, transactional_id: str, protocol: str
) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"v": ["a", "b"]})

    async def run() -> None:
        async with AsyncProducer(broker.bootstrap, transactional_id=transactional_id) as producer:
            async with producer.transaction():
                await producer.send_table(topic, table, value="v")
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with producer.transaction():
                    await (await producer.send_table(topic, table, value="v"))
                    raise ZeroDivisionError

    asyncio.run(run())
    assert committed(broker, topic) == [b"a", b"b"]


def test_a_coordinator_that_is_killed_in_between(transactional_id: str, protocol: str) -> None:
    with (
        BrokerProcess() as broker,
        Producer(
            broker.bootstrap, transactional_id=transactional_id, reconnect_backoff_max_ms=100
        ) as producer,
    ):
        for number in range(3):
            with producer.transaction():
                producer.send("t", b"%d" % number)
                broker.restart(kill=True)
        assert committed(broker, "t") == [b"0", b"1", b"2"]
