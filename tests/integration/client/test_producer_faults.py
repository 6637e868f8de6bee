"""Connections cut at random bytes, brokers and producers killed.

With idempotence no record is lost, duplicated or reordered. A failing run prints its seed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.client.cutting_proxy import CuttingProxy

from ottla import Producer
from ottla.client.producer import transaction
from ottla.testing.broker import BrokerProcess

TIMEOUT_S = 60
_topics = count(1)


class Place:
    """A broker behind a proxy."""

    def __init__(self) -> None:
        self.proxy = CuttingProxy()
        self.broker = BrokerProcess(
            overrides={
                "advertised.listeners": f"PLAINTEXT://{self.proxy.bootstrap}",
                "num.partitions": "2",
            }
        ).start()
        self.proxy.forward_to(self.broker.port)

    def close(self) -> None:
        self.broker.close()
        self.proxy.close()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    yield from opened()


@pytest.fixture
def own_place() -> Iterator[Place]:
    """Start a broker with few topics: after a kill it has to recover all of them."""
    yield from opened()


def opened() -> Iterator[Place]:
    place = Place()
    yield place
    log = place.broker.log()
    place.close()
    assert "Traceback" not in log, log


def read(bootstrap: str, topic: str, partitions: int = 2) -> dict[int, list[bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    ended = 0
    while ended < partitions:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{topic} cannot be read"
        if message.error() is None:
            found[message.partition()].append(message.value())
        else:
            ended += 1
    consumer.close()
    return found


def run_with_cuts(place: Place, seed: int, *, kills: int = 0) -> None:
    """Send records while the proxy cuts connections, then check the log."""
    chance = random.Random(seed)
    topic = f"cut-{seed}-{next(_topics)}"
    place.proxy.cut(None)
    records = chance.randint(200, 1500)
    batch_size = chance.choice([0, 200, 1000, 16_384])
    with Producer(
        place.proxy.bootstrap,
        batch_size=batch_size,
        linger_ms=chance.choice([0, 1, 5]),
        buffer_memory=chance.choice([30_000, 1_000_000]),
        compression_type=chance.choice(["none", "none", "lz4"]),
        max_in_flight_requests_per_connection=chance.randint(1, 5),
        retry_backoff_ms=1,
        retry_backoff_max_ms=chance.choice([1, 20, 100]),
        reconnect_backoff_ms=1,
        reconnect_backoff_max_ms=10,
    ) as producer:
        producer.partition_metadata(topic)
        place.proxy.cut(chance.choice([1, 3]) * max(1_500, batch_size / 3), seed)
        killer = threading.Thread(target=_kill, args=(place, kills, chance.random()))
        killer.start()
        sent: dict[int, list[bytes]] = {0: [], 1: []}
        futures = []
        for number in range(records):
            partition = chance.randrange(2)
            value = b"%d %s" % (number, bytes(chance.randrange(60)))
            sent[partition].append(value)
            futures.append(producer.send(topic, value, partition=partition))
        killer.join()
        try:
            producer.flush(TIMEOUT_S)
        finally:
            place.proxy.cut(None)
        offsets: dict[int, list[int]] = {0: [], 1: []}
        for future in futures:
            metadata = future.result(0)
            offsets[metadata.partition].append(metadata.offset)
    found = read(place.proxy.bootstrap, topic)
    assert found == sent, f"seed {seed}"
    expected = {partition: list(range(len(values))) for partition, values in sent.items()}
    assert offsets == expected, f"seed {seed}"


def _kill(place: Place, kills: int, pause_s: float) -> None:
    for _ in range(kills):
        threading.Event().wait(pause_s / 10)
        place.broker.restart(kill=True)


def test_connections_cut_mid_batch_lose_double_and_reorder_nothing(place: Place) -> None:
    for seed in range(10):
        run_with_cuts(place, seed)
    assert place.proxy.cuts > 20


def test_a_broker_killed_and_restarted_loses_doubles_and_reorders_nothing(
    own_place: Place,
) -> None:
    run_with_cuts(own_place, 1000, kills=1)


@pytest.mark.chaos
def test_two_hundred_random_runs(place: Place) -> None:
    for seed in range(2000, 2200):
        run_with_cuts(place, seed)
    assert place.proxy.cuts > 200


@pytest.mark.chaos
def test_thirty_random_runs_with_killed_brokers(own_place: Place) -> None:
    for seed in range(3000, 3030):
        run_with_cuts(own_place, seed, kills=2)


def run_transactions(place: Place, seed: int) -> None:
    """Run transactions while the proxy cuts connections, then check the log.

    Committed transactions must be visible completely, exactly once and in order, and others not
    at all."""
    chance = random.Random(seed)
    topic = f"transactions-{seed}-{next(_topics)}"
    place.proxy.cut(None)
    committed: dict[int, list[bytes]] = {0: [], 1: []}
    with Producer(
        place.proxy.bootstrap,
        transactional_id=topic,
        batch_size=200,
        linger_ms=1,
        retry_backoff_ms=1,
        retry_backoff_max_ms=20,
        reconnect_backoff_ms=1,
        reconnect_backoff_max_ms=10,
    ) as producer:
        producer.partition_metadata(topic)
        place.proxy.cut(chance.choice([1_000, 3_000]), seed)
        for number in range(chance.randint(5, 20)):
            records = [
                (chance.randrange(2), b"%d-%d" % (number, index))
                for index in range(chance.randrange(1, 60))
            ]
            is_aborted = chance.random() < 0.3
            producer.begin_transaction()
            for partition, value in records:
                producer.send(topic, value, partition=partition)
            if is_aborted:
                producer.abort_transaction()
                continue
            producer.commit_transaction()
            for partition, value in records:
                committed[partition].append(value)
        place.proxy.cut(None)
    assert read(place.proxy.bootstrap, topic) == committed, f"seed {seed}"


@pytest.mark.parametrize("first_implicit", [2, 99])
def test_transactions_over_connections_that_are_cut(
    place: Place, first_implicit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "FIRST_IMPLICIT", first_implicit)
    for seed in range(2):
        run_transactions(place, seed)


@pytest.mark.chaos
@pytest.mark.parametrize("first_implicit", [2, 99])
def test_fifty_random_runs_of_transactions(
    place: Place, first_implicit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "FIRST_IMPLICIT", first_implicit)
    for seed in range(4000, 4050):
        run_transactions(place, seed)


_KILLED = """
import sys
from ottla import Producer
producer = Producer(sys.argv[1], linger_ms=1, batch_size=2000)
for number in range(10_000_000):
    future = producer.send(sys.argv[2], b"%d" % number, partition=0)
    if number % 500 == 499:
        print(future.result().offset, flush=True)
"""


def run_killed(place: Place, seed: int) -> None:
    chance = random.Random(seed)
    topic = f"killed-{seed}-{next(_topics)}"
    place.proxy.cut(None)
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, place.broker.bootstrap, topic], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    acknowledged = -1
    for _ in range(chance.randint(1, 10)):
        acknowledged = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait(TIMEOUT_S)
    process.stdout.close()
    values = [int(value) for value in read(place.proxy.bootstrap, topic)[0]]
    assert values == list(range(len(values))), f"seed {seed}"
    assert len(values) > acknowledged, f"seed {seed}"


def test_acknowledged_records_of_a_killed_producer_exist_once_and_in_order(place: Place) -> None:
    run_killed(place, 1)


@pytest.mark.chaos
def test_thirty_killed_producers(place: Place) -> None:
    for seed in range(100, 130):
        run_killed(place, seed)
