"""Transactions through the clients' own calls: commit, abort, offsets, fencing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest
from tests.compat.clients.record import TIMEOUT_S
from tests.integration.transactions.producer import read_all, read_committed
from tests.raw_client import RawClient, eventually

from ottla.testing.broker import BrokerProcess

OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}
_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(strict=True, overrides=OVERRIDES) as process:
        yield process
        log = process.log()
    assert "Traceback" not in log, log


@pytest.fixture
def topic(raw: RawClient) -> str:
    name = f"transactions.{next(_numbers)}"
    raw.create_topic(name, 2)
    return name


COMMITTED = [b"committed %d" % number for number in range(20)]
ABORTED = [b"aborted %d" % number for number in range(20)]
LATER = [b"later %d" % number for number in range(20)]


def check_records(raw: RawClient, topic: str) -> None:
    for partition in range(2):
        assert read_committed(raw, topic, partition) == COMMITTED + LATER
        assert read_all(raw, topic, partition)[:40] == COMMITTED + ABORTED


# -------------------------------------------------------------------------------- confluent-kafka


class Confluent:
    def __init__(self, broker: BrokerProcess) -> None:
        self.library = pytest.importorskip("confluent_kafka", reason="it is not installed")
        self.common = {"bootstrap.servers": broker.bootstrap}

    def producer(self, transactional_id: str) -> Any:
        producer = self.library.Producer({**self.common, "transactional.id": transactional_id})
        producer.init_transactions(TIMEOUT_S)
        return producer

    def consumer(self, group: str, topic: str, isolation: str = "read_committed") -> Any:
        consumer = self.library.Consumer(
            {
                **self.common,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": isolation,
            }
        )
        consumer.subscribe([topic])
        return consumer


@pytest.fixture
def confluent(broker: BrokerProcess) -> Confluent:
    return Confluent(broker)


def test_confluent_commits_and_aborts(confluent: Confluent, raw: RawClient, topic: str) -> None:
    producer = confluent.producer(f"confluent-{topic}")

    def write(contents: list[bytes]) -> None:
        producer.begin_transaction()
        for content in contents:
            for partition in range(2):
                producer.produce(topic, content, partition=partition)

    write(COMMITTED)
    producer.commit_transaction(TIMEOUT_S)
    write(ABORTED)
    producer.flush()
    producer.abort_transaction(TIMEOUT_S)
    write(LATER)
    producer.commit_transaction(TIMEOUT_S)
    check_records(raw, topic)

    consumer = confluent.consumer(f"confluent-{topic}", topic)
    found = [eventually(lambda: consumer.poll(0.2)).value() for _ in range(80)]
    assert sorted(found) == sorted(2 * (COMMITTED + LATER))
    assert consumer.poll(0.3) is None
    consumer.close()


def test_confluent_commits_offsets_with_what_it_made_of_them(
    confluent: Confluent, raw: RawClient, topic: str
) -> None:
    for number in range(10):
        raw.produce(topic, [(None, b"%d" % number, (), int(time.time() * 1000))])
    group, output = f"confluent-{topic}", f"{topic}.out"
    raw.create_topic(output)
    producer = confluent.producer(f"confluent-{topic}")
    consumer = confluent.consumer(group, topic)
    for outcome in ("abort", "commit"):
        messages = [eventually(partial(consumer.poll, 0.2)) for _ in range(10)]
        producer.begin_transaction()
        for message in messages:
            producer.produce(output, message.value() + b"!", partition=0)
        position = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
        if outcome == "abort":
            producer.abort_transaction(TIMEOUT_S)
            for each in consumer.committed(consumer.assignment(), TIMEOUT_S):
                assert each.offset < 0
            consumer.close()
            consumer = confluent.consumer(group, topic)
        else:
            producer.commit_transaction(TIMEOUT_S)
    (committed,) = consumer.committed([confluent.library.TopicPartition(topic, 0)], TIMEOUT_S)
    assert committed.offset == 10
    assert read_committed(raw, output) == [b"%d!" % number for number in range(10)]
    consumer.close()


def test_confluent_is_fenced_by_a_newer_producer(
    confluent: Confluent, raw: RawClient, topic: str
) -> None:
    old = confluent.producer(f"confluent-{topic}")
    old.begin_transaction()
    old.produce(topic, b"old", partition=0)
    old.flush(TIMEOUT_S)
    new = confluent.producer(f"confluent-{topic}")
    with pytest.raises(confluent.library.KafkaException) as failure:
        old.commit_transaction(TIMEOUT_S)
    assert failure.value.args[0].fatal()
    new.begin_transaction()
    new.produce(topic, b"new", partition=0)
    new.commit_transaction(TIMEOUT_S)
    assert read_committed(raw, topic) == [b"new"]


# ----------------------------------------------------------------------------------- kafka-python


def test_kafka_python_commits_aborts_and_commits_offsets(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    library = pytest.importorskip("kafka", reason="it is not installed")
    structs = pytest.importorskip("kafka.structs")
    producer = library.KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=f"kafka-python-{topic}"
    )
    producer.init_transactions()

    def write(contents: list[bytes]) -> None:
        producer.begin_transaction()
        for content in contents:
            for partition in range(2):
                producer.send(topic, content, partition=partition)
        producer.flush(TIMEOUT_S)

    write(COMMITTED)
    producer.commit_transaction()
    write(ABORTED)
    producer.abort_transaction()
    group = f"kafka-python-{topic}"
    write(LATER)
    offset = structs.OffsetAndMetadata(5, "", -1)
    producer.send_offsets_to_transaction({structs.TopicPartition(topic, 0): offset}, group)
    producer.commit_transaction()
    producer.close()
    check_records(raw, topic)

    consumer = library.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
        enable_auto_commit=False,
    )
    partition = structs.TopicPartition(topic, 0)
    consumer.assign([partition])
    assert consumer.committed(partition) == 5
    found = [next(consumer).value for _ in range(35)]
    assert found == COMMITTED[5:] + LATER
    consumer.close()


# --------------------------------------------------------------------------------------- aiokafka


def test_aiokafka_commits_aborts_and_commits_offsets(
    broker: BrokerProcess, raw: RawClient, topic: str
) -> None:
    library = pytest.importorskip("aiokafka", reason="it is not installed")
    group = f"aiokafka-{topic}"
    partition = library.TopicPartition(topic, 0)

    async def produce() -> None:
        producer = library.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=f"aiokafka-{topic}"
        )
        await producer.start()

        async def write(contents: list[bytes]) -> None:
            for content in contents:
                for index in range(2):
                    await producer.send(topic, content, partition=index)
            await producer.flush()

        async with producer.transaction():
            await write(COMMITTED)
        await producer.begin_transaction()
        await write(ABORTED)
        await producer.abort_transaction()
        async with producer.transaction():
            await write(LATER)
            await producer.send_offsets_to_transaction({partition: 5}, group)
        await producer.stop()

    async def consume() -> list[bytes]:
        consumer = library.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        consumer.assign([partition])
        assert await consumer.committed(partition) == 5
        found = [(await consumer.getone()).value for _ in range(35)]
        await consumer.stop()
        return found

    asyncio.run(asyncio.wait_for(produce(), TIMEOUT_S))
    check_records(raw, topic)
    assert asyncio.run(asyncio.wait_for(consume(), TIMEOUT_S)) == COMMITTED[5:] + LATER
