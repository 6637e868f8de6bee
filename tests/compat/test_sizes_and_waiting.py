"""Large records, many partitions, and consumers that wait for data."""

from __future__ import annotations

import threading
import time
from statistics import median
from typing import Any

import pytest
from tests.compat.clients.record import Client, ProduceRefused, Received, Sent
from tests.compat.conftest import CLIENTS, make_client
from tests.raw_client import TIMEOUT_S, RawClient

from ottla.testing.broker import BrokerProcess

MESSAGE_TOO_LARGE = 10
PARTITIONS = 60
WAITS = 10


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_record_of_megabytes_comes_back_whole(raw: RawClient, client: Client, topic: str) -> None:
    raw.create_topic(topic, max_message_bytes="12000000")
    large = Sent(b"large", bytes(range(256)) * 40_000)
    client.produce(topic, [large, Sent(b"small", b"after it")])
    received = client.consume(topic, 2)
    assert [(each.key, each.value) for each in received] == [large[:2], (b"small", b"after it")]


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_record_above_max_message_bytes_is_refused(
    raw: RawClient, client: Client, topic: str
) -> None:
    raw.create_topic(topic, max_message_bytes="5000")
    with pytest.raises(ProduceRefused) as refused:
        client.produce(topic, [Sent(b"k", bytes(6000))])
    assert refused.value.code == MESSAGE_TOO_LARGE
    client.produce(topic, [Sent(b"k", bytes(4000))])
    assert raw.offsets(topic) == (0, 1)


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_every_one_of_many_partitions_can_be_used(
    raw: RawClient, client: Client, topic: str
) -> None:
    raw.create_topic(topic, PARTITIONS)
    for partition in (0, PARTITIONS // 2, PARTITIONS - 1):
        value = b"in %d" % partition
        client.produce(topic, [Sent(None, value)], partition=partition)
        (received,) = client.consume(topic, 1, partition=partition)
        assert received.value == value
    used = [partition for partition in range(PARTITIONS) if raw.offsets(topic, partition)[1]]
    assert used == [0, PARTITIONS // 2, PARTITIONS - 1]


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_waiting_consumer_gets_a_record_as_soon_as_it_is_appended(
    broker: BrokerProcess, raw: RawClient, client: Client, topic: str
) -> None:
    """The consumer's fetch may wait ten seconds: only a new record can end it sooner."""
    raw.create_topic(topic)
    arrivals: list[float] = []
    arrived = threading.Semaphore(0)

    def on_record(record: Received) -> None:
        arrivals.append(time.monotonic())
        arrived.release()

    reader = threading.Thread(
        target=make_client(client.name, broker.bootstrap).consume,
        args=(topic, WAITS + 1),
        kwargs={"max_wait_ms": 10_000, "on_record": on_record},
    )
    reader.start()
    appends = []
    for number in range(WAITS + 1):
        raw.produce(topic, [(None, b"%d" % number, (), 1)])
        appends.append(time.monotonic())
        assert arrived.acquire(timeout=TIMEOUT_S)
    reader.join(TIMEOUT_S)
    delays = [got - gave for got, gave in zip(arrivals, appends, strict=True)]
    assert median(delays[1:]) < 0.1  # the first delay includes connecting the consumer


def test_a_client_reads_many_partitions_at_once(broker: BrokerProcess, topic: str) -> None:
    """The client uses one fetch session, with incremental fetches."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    from tests.compat.clients.confluent import Confluent

    client = Confluent(broker.bootstrap)
    client.create_topic(topic, PARTITIONS)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(PARTITIONS * 20):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = client.consumer()
    assigned = [confluent_kafka.TopicPartition(topic, each, 0) for each in range(PARTITIONS)]
    consumer.assign(assigned)
    found: list[tuple[Any, int]] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < PARTITIONS * 20 and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.1):
            assert message.error() is None
            found.append((message.partition(), int(message.value() or b"")))
    consumer.close()
    expected = [(number % PARTITIONS, number) for number in range(PARTITIONS * 20)]
    assert sorted(found) == sorted(expected)
    for partition in range(PARTITIONS):
        mine = [number for where, number in found if where == partition]
        assert mine == sorted(mine)
