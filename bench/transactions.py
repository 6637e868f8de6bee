"""Cost of transactions: compared to an idempotent producer, of a commit, and of many at once.

The share: a client repeatedly writes 100 records of 1 KB and waits until they are safe; once as an
idempotent producer, which flushes, and once in a transaction, which it commits. Both take turns in
the same run. The budget is for a client in Python (kafka-python). librdkafka spends next to nothing
on a record, so its share is that of the requests: a transaction takes three (add partitions,
produce, end), a flush one. That figure has no budget.

The latency of a commit is that of `commit_transaction` with nothing left to send, for one producer.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from statistics import median
from typing import Any

from confluent_kafka import Producer
from kafka import KafkaProducer
from tests.integration.transactions.producer import TransactionalProducer
from tests.raw_client import RawClient

from bench import load
from bench.measure import Figure, cpu_seconds
from ottla.testing.broker import BrokerProcess

TOPIC = "transactions"
KAFKA_PYTHON = "kafka-python"
PARTITIONS = 4
RECORDS = 100
ROUNDS = 6
UNITS = 60
PRODUCERS = 6
COMMITS = 300
IDS = 1_000
CONNECTIONS = 8
TIMEOUT_S = 60


def run() -> Iterator[Figure]:
    with BrokerProcess() as broker:
        load.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        pairs = {kind: [_kafka_python(broker, transactional=kind)] for kind in (False, True)}
        yield from _share(KAFKA_PYTHON, pairs, UNITS // 3)
        pairs = {
            kind: [_producer(broker, transactional=kind) for _ in range(PRODUCERS)]
            for kind in (False, True)
        }
        yield from _share("librdkafka", pairs, UNITS)
        yield _commit_latency(broker)
        yield from _many_ids(broker)


def _producer(broker: BrokerProcess, *, transactional: bool) -> Producer:
    config: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 1,
        "log_level": 0,
    }
    if transactional:
        config["transactional.id"] = uuid.uuid4().hex
    producer = Producer(config)
    if transactional:
        producer.init_transactions(TIMEOUT_S)
    return producer


def _kafka_python(broker: BrokerProcess, *, transactional: bool) -> Any:
    config = {"bootstrap_servers": broker.bootstrap, "linger_ms": 1}
    if not transactional:
        return KafkaProducer(**config, enable_idempotence=True)
    producer = KafkaProducer(**config, transactional_id=uuid.uuid4().hex)
    producer.init_transactions()
    return producer


def _share(name: str, producers: dict[bool, list[Any]], units: int) -> Iterator[Figure]:
    """Compare transactional producers with idempotent ones, by the API of either client.

    Args:
        name: Name of the client, librdkafka or kafka-python.
        producers: Producers, by whether they are transactional.
        units: Number of flushes or transactions in a round.
    """
    value = bytes(load.RECORD_BYTES)

    def write(producer: Any, number: int, count: int, transactional: bool) -> None:
        send = producer.produce if isinstance(producer, Producer) else producer.send
        for _ in range(count):
            if transactional:
                producer.begin_transaction()
            for _ in range(RECORDS):
                send(TOPIC, value, partition=number % PARTITIONS)
            if transactional:
                producer.commit_transaction()
            else:
                producer.flush()

    def run_round(transactional: bool, count: int) -> float:
        threads = [
            threading.Thread(target=write, args=(producer, number, count, transactional))
            for number, producer in enumerate(producers[transactional])
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began

    spent = {False: 0.0, True: 0.0}
    for kind in spent:
        run_round(kind, 5)
    for _ in range(ROUNDS):
        for kind in spent:
            spent[kind] += run_round(kind, units)
    total = ROUNDS * units * len(producers[False]) * RECORDS
    yield Figure(f"{name}, flushed every 100 records", total / spent[False], "records/s")
    yield Figure(f"{name}, transactions of 100 records", total / spent[True], "records/s")
    share = 100 * spent[False] / spent[True]
    budget = 60 if name == KAFKA_PYTHON else None
    yield Figure(f"{name}, relative to the idempotent rate", share, "%", budget, at_least=True)


def _commit_latency(broker: BrokerProcess) -> Figure:
    producer = _producer(broker, transactional=True)
    taken = []
    for _ in range(COMMITS):
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(TOPIC, b"x" * 100, partition=0)
        producer.flush(TIMEOUT_S)
        began = time.perf_counter()
        producer.commit_transaction(TIMEOUT_S)
        taken.append(time.perf_counter() - began)
    return Figure("commit, p50", 1000 * median(taken), "ms", budget=5)


def _many_ids(broker: BrokerProcess) -> Iterator[Figure]:
    """Measure many transactions. All are open before the first one is committed."""
    clients = [RawClient(broker.port) for _ in range(CONNECTIONS)]
    producers = [
        TransactionalProducer(clients[number % CONNECTIONS], f"many-{number}")
        for number in range(IDS)
    ]
    for producer in producers:
        producer.begin()
    before, began = cpu_seconds(broker.pid), time.perf_counter()

    def all_of(number: int, work: str) -> None:
        for producer in producers[number::CONNECTIONS]:
            code = producer.produce(TOPIC, b"x") if work == "produce" else producer.end()
            assert code == 0, code

    for work in ("produce", "end"):
        threads = [
            threading.Thread(target=all_of, args=(number, work)) for number in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seconds = time.perf_counter() - began
    spent = cpu_seconds(broker.pid) - before
    yield Figure("1,000 transactional ids at once", IDS / seconds, "transactions/s")
    yield Figure("broker's CPU for each", 1000 * spent / IDS, "CPU ms")
    for client in clients:
        client.close()
