"""Change capture from PostgreSQL: changes per second, and the latency of a change.

The setup is a table of six columns, a worker as a process, and records in Debezium's envelope as
JSON without schemas. The rate is that of a backlog, from the first to the last of its records in
the topic; it is also reported per CPU second of the worker, because machines are shared. The
latency is measured from before a transaction of one insert until a consumer has its record.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.connect.databases.servers import Postgres, running
from tests.connect.databases.worker import Worker

from bench.measure import Figure, cpu_seconds
from ottla import Consumer, TopicPartition
from ottla.testing.broker import BrokerProcess

TABLE = """CREATE TABLE orders (id int PRIMARY KEY, customer int, note text, price numeric(10,2),
           at timestamptz DEFAULT now(), done boolean)"""
TOPIC = "bench.public.orders"
CHANGES = 100_000
PER_TRANSACTION = 100
SINGLE_CHANGES = 200
PATIENCE_S = 300.0


def run() -> Iterator[Figure]:
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Postgres()) as postgres,
        BrokerProcess() as broker,
    ):
        postgres.run(TABLE)
        worker = Worker(Path(folder), broker.bootstrap, _source(postgres))
        worker.start()
        try:
            worker.wait_for("capture", "RUNNING")
            yield from _measured(postgres, worker, broker.bootstrap)
        finally:
            worker.kill()


def _source(postgres: Postgres) -> dict[str, str]:
    return {
        "name": "capture",
        "connector.class": "PostgresSource",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": "postgres",
        "database.password": postgres.password,
        "database.dbname": "postgres",
        "topic.prefix": "bench",
        "key.converter": "JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }


def _measured(postgres: Postgres, worker: Worker, bootstrap: str) -> Iterator[Figure]:
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        postgres.run("INSERT INTO orders VALUES (-1)")
        _assign(consumer)
        _read(consumer, 1)
        yield from _rate(postgres, worker, consumer)
        yield from _latency(postgres, consumer)


def _assign(consumer: Any) -> None:
    """Assign the partition, which exists once the first record has been written."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            consumer.assign([TopicPartition(TOPIC, 0)])
            consumer.seek_to_beginning()
            consumer.poll(0)
            return
        except Exception:
            time.sleep(0.1)


def _read(consumer: Any, count: int) -> float:
    until = time.monotonic() + PATIENCE_S
    while count > 0:
        assert time.monotonic() < until, "records are missing"
        count -= len(consumer.poll(0.5))
    return time.monotonic()


def _rate(postgres: Postgres, worker: Worker, consumer: Any) -> Iterator[Figure]:
    assert worker.process is not None
    before = cpu_seconds(worker.process.pid)
    start = time.monotonic()
    with postgres.connect() as connection:
        for first in range(0, CHANGES, PER_TRANSACTION):
            connection.execute(
                "INSERT INTO orders (id, customer, note, price, done) "
                "SELECT i, i %% 100, 'note number ' || i, i * 0.01, true "
                "FROM generate_series(%s::int, %s::int) i",
                [first, first + PER_TRANSACTION - 1],
            )
    taken = _read(consumer, CHANGES) - start
    cpu = cpu_seconds(worker.process.pid) - before
    yield Figure("capture: changes", CHANGES / taken, "per s", 10_000, at_least=True)
    yield Figure("capture: changes per CPU second of the worker", CHANGES / cpu, "per s")


def _latency(postgres: Postgres, consumer: Any) -> Iterator[Figure]:
    taken = []
    with postgres.connect() as connection:
        for number in range(SINGLE_CHANGES):
            start = time.monotonic()
            connection.execute("INSERT INTO orders (id) VALUES (%s)", [CHANGES + number])
            taken.append((_read(consumer, 1) - start) * 1000)
    taken.sort()
    yield Figure("capture: latency, p50", taken[len(taken) // 2], "ms")
    yield Figure("capture: latency, p99", taken[len(taken) * 99 // 100], "ms")
