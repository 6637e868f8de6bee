"""Load generator: librdkafka in separate processes, whose work does not count as the broker's."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

RECORD_BYTES = 1_000
TIMEOUT_S = 120
_fork = multiprocessing.get_context("fork")


def in_processes(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run `work(number)` in `count` processes at once, and return their results."""
    with _fork.Pool(count) as pool:
        return pool.map(work, range(count), chunksize=1)


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(TIMEOUT_S)


def produce_batches(
    bootstrap: str,
    topic: str,
    partitions: int,
    records: int,
    batch_bytes: int,
    value: bytes | None = None,
) -> None:
    """Produce records of 1 KB, or of a given value, in batches of a given size, with acks=all."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": batch_bytes,
            "batch.num.messages": 1_000_000,
            "linger.ms": 50,
            "acks": "all",
            "queue.buffering.max.messages": 100_000,
        }
    )
    value = os.urandom(RECORD_BYTES) if value is None else value
    per_batch = max(1, batch_bytes // (len(value) + 20))
    for number in range(records):
        _produce(producer, topic, value, (number // per_batch) % partitions)
        if number % 1_000 == 0:
            producer.poll(0)
    _flush(producer)


def produce_singly(bootstrap: str, topic: str, first_partition: int, records: int) -> None:
    """Produce one record per request, with five requests in flight on each of four connections."""
    producers = [
        Producer(
            {
                "bootstrap.servers": bootstrap,
                "batch.num.messages": 1,
                "linger.ms": 0,
                "max.in.flight": 5,
                "acks": 1,
                "queue.buffering.max.messages": 20_000,
            }
        )
        for _ in range(4)
    ]
    value = os.urandom(100)
    for number in range(records):
        for index, producer in enumerate(producers):
            _produce(producer, topic, value, first_partition + index)
            if number % 100 == 0:
                producer.poll(0)
    for producer in producers:
        _flush(producer)


def consume(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 200_000,
            "fetch.message.max.bytes": 1_048_576,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    deadline = time.monotonic() + TIMEOUT_S
    seen = 0
    while seen < records:
        seen += len(consumer.consume(10_000, 1.0))
        if time.monotonic() > deadline:
            raise TimeoutError(f"{seen} of {records} records were read")
    consumer.close()


def latencies_ms(bootstrap: str, topic: str, partitions: int, count: int) -> list[float]:
    """Return the sorted latencies of single records, sent one after another to all partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    value = os.urandom(100)
    taken = []
    step = max(1, partitions // count) if partitions > count else 1
    for number in range(count):
        start = time.perf_counter()
        _produce(producer, topic, value, number * step % partitions)
        while len(producer):
            producer.poll(1.0)
        taken.append((time.perf_counter() - start) * 1000)
    return sorted(taken)


def _produce(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.005)
        else:
            return


def _flush(producer: Producer) -> None:
    left = producer.flush(TIMEOUT_S)
    if left:
        raise TimeoutError(f"{left} records were not acknowledged within {TIMEOUT_S} s")
