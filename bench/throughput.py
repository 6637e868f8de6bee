"""CPU time of the broker per gigabyte in and out, and per one-record request."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import load
from bench.measure import GB, Figure, cpu_seconds, touch_memory, write_floor_seconds
from ottla.testing.broker import BrokerProcess

PARTITIONS = 4
RECORDS = 600_000
BATCH_BYTES = (65_536, 131_072, 262_144)
SINGLE_RECORDS = 25_000
WARM_BYTES = 4 * GB


def run() -> Iterator[Figure]:
    touch_memory(WARM_BYTES)
    with BrokerProcess() as broker:
        floor = write_floor_seconds(GB, 131_072, str(broker.data_dir))
        yield Figure("floor: writing 1 GB to files", floor, "CPU s/GB")
        for batch_bytes in BATCH_BYTES:
            yield _bytes_in(broker, batch_bytes)
        yield _bytes_out(broker, BATCH_BYTES[-1])
        yield _single_records(broker)


def _bytes_in(broker: BrokerProcess, batch_bytes: int) -> Figure:
    topic = f"batches-{batch_bytes}"
    load.create_topic(broker.bootstrap, topic, PARTITIONS)
    before = cpu_seconds(broker.pid)
    work = partial(_produce, broker.bootstrap, topic, batch_bytes)
    load.in_processes(1, work)
    spent = cpu_seconds(broker.pid) - before
    return Figure(
        f"in: 1 KB records in {batch_bytes // 1024} KB batches",
        spent / (RECORDS * load.RECORD_BYTES / GB),
        "CPU s/GB",
        budget=0.8,
    )


def _produce(bootstrap: str, topic: str, batch_bytes: int, number: int) -> None:
    load.produce_batches(bootstrap, topic, PARTITIONS, RECORDS, batch_bytes)


def _bytes_out(broker: BrokerProcess, batch_bytes: int) -> Figure:
    before = cpu_seconds(broker.pid)
    work = partial(_consume, broker.bootstrap, f"batches-{batch_bytes}")
    load.in_processes(1, work)
    spent = cpu_seconds(broker.pid) - before
    return Figure("out", spent / (RECORDS * load.RECORD_BYTES / GB), "CPU s/GB", budget=0.6)


def _consume(bootstrap: str, topic: str, number: int) -> None:
    load.consume(bootstrap, topic, PARTITIONS, RECORDS)


def _single_records(broker: BrokerProcess) -> Figure:
    load.create_topic(broker.bootstrap, "single", 8)
    before = cpu_seconds(broker.pid)
    load.in_processes(2, partial(_produce_singly, broker.bootstrap))
    spent = cpu_seconds(broker.pid) - before
    return Figure(
        "one-record requests, 8 connections, 5 in flight",
        8 * SINGLE_RECORDS / spent,
        "requests per CPU s",
        budget=20_000,
        at_least=True,
    )


def _produce_singly(bootstrap: str, number: int) -> None:
    load.produce_singly(bootstrap, "single", 4 * number, SINGLE_RECORDS)
