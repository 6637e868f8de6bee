"""Small transactions on three brokers: one record each, one after another, by one producer.

Such a producer only waits for the brokers: for the leader that adds the partition to the
transaction, for the in-sync replicas of the record, and for the decision to commit. The next
transaction begins while the markers of the last one are being written.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.peers import topics
from bench.peers.brokers import Peer, alternating, both, cpu_of
from bench.peers.rows import Row, Rows
from bench.peers.scale import Scale
from compat import jars

REPLICAS = 3
PARTITIONS = 3
WARMUP = 100
TIMEOUT_S = 60.0
JAVA_TIMEOUT_S = 600.0
VALUE = bytes(100)
JAVA_SOURCE = Path(__file__).with_name("SmallTransactions.java")
Client = Callable[[str, str, int], list[float]]
"""Function of bootstrap servers, topic and count that returns the times of transactions, in ms."""


def run(scale: Scale) -> list[Row]:
    rows = Rows("transactions")
    with both(nodes=REPLICAS) as peers:
        for peer in peers:
            topics.create(peer.bootstrap, "small", PARTITIONS, REPLICAS)
            topics.wait_until_in_sync(peer.bootstrap, "small", REPLICAS)
        for name, client in CLIENTS.items():
            for number, peer in alternating(peers, scale.rounds):
                before = cpu_of(peer)
                taken = client(peer.bootstrap, "small", scale.transactions)
                spent = cpu_of(peer) - before
                if number:
                    _add(rows, name, peer, taken, spent)
    return rows.whole()


def _add(rows: Rows, client: str, peer: Peer, taken: list[float], spent_s: float) -> None:
    what = f"transactions of one record, RF 3, {client}"
    rate = len(taken) / (sum(taken) / 1_000)
    rows.add(what, "transactions/s", rate, is_ours=peer.is_ours)
    for name, value in (
        (f"{what}: p50", median(taken)),
        (f"{what}: p99", sorted(taken)[int(len(taken) * 0.99)]),
    ):
        rows.add(name, "ms", value, is_ours=peer.is_ours, higher_is_better=False)
    rows.add(
        f"{what}: CPU of all",
        "CPU ms/transaction",
        1_000 * spent_s / (len(taken) + WARMUP),
        is_ours=peer.is_ours,
        higher_is_better=False,
    )


def librdkafka(bootstrap: str, topic: str, count: int) -> list[float]:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": uuid.uuid4().hex,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)

    def transact(partition: int) -> None:
        producer.begin_transaction()
        producer.produce(topic, VALUE, partition=partition)
        producer.commit_transaction(TIMEOUT_S)

    return _timed(transact, count)


def ours(bootstrap: str, topic: str, count: int) -> list[float]:
    from ottla import Producer

    settings: dict[str, Any] = {"transactional_id": uuid.uuid4().hex, "linger_ms": 0}
    with Producer(bootstrap, **settings) as producer:

        def transact(partition: int) -> None:
            with producer.transaction():
                producer.send(topic, VALUE, partition=partition)

        return _timed(transact, count)


def _timed(transact: Callable[[int], None], count: int) -> list[float]:
    taken = []
    for number in range(-WARMUP, count):
        began = time.perf_counter()
        transact(number % PARTITIONS)
        if number >= 0:
            taken.append(1_000 * (time.perf_counter() - began))
    return taken


def java(bootstrap: str, topic: str, count: int) -> list[float]:
    command = [
        *(jars.java_command(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
        *("-cp", str(jars.directory() / "*"), str(JAVA_SOURCE)),
        *(bootstrap, topic, uuid.uuid4().hex, str(PARTITIONS), str(WARMUP), str(count)),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{JAVA_SOURCE.name} failed:\n{done.stderr[-2_000:]}")
    return [float(line) for line in done.stdout.split()]


CLIENTS: dict[str, Client] = {"librdkafka": librdkafka, "Java client": java, "Ottla client": ours}
