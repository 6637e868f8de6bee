"""Records per second from Python, one by one and as tables: our producer and others.

All clients use acks=all, idempotence where they support it, batches of at most 16 KB and 5 ms, one
topic with a few partitions, and values of 100 bytes without keys. Each client runs in its own
process and first sends a quarter of the records without timing, to exclude one-time costs such as
the allocation of buffers. Rounds are interleaved, because the machine is noisy, and the best round
of each client counts. The CPU time per record, of all threads, shows the same with less noise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, NamedTuple

from bench.load import create_topic, in_processes
from bench.measure import Figure
from ottla.testing.broker import BrokerProcess

RECORDS = 200_000
TABLE_RECORDS = 2_000_000
ROUNDS = 3
PARTITIONS = 4
VALUE = bytes(range(100))
TOPIC = "produced"
BATCH_BYTES = 16_384
LINGER_MS = 5


class Rate(NamedTuple):
    records_per_s: float
    cpu_us: float


class Stopwatch:
    def __init__(self, records: int = RECORDS) -> None:
        self._records = records
        self._start = time.perf_counter()
        self._cpu = time.process_time()

    def rate(self) -> Rate:
        elapsed, cpu = time.perf_counter() - self._start, time.process_time() - self._cpu
        return Rate(self._records / elapsed, cpu / self._records * 1e6)


def ours(bootstrap: str, _: int) -> Rate:
    from ottla import Producer

    with Producer(bootstrap) as producer:
        for _ in range(RECORDS // 4):
            producer.send(TOPIC, VALUE)
        producer.flush()
        watch = Stopwatch()
        for _ in range(RECORDS):
            producer.send(TOPIC, VALUE)
        producer.flush()
        return watch.rate()


def ours_async(bootstrap: str, _: int) -> Rate:
    from ottla import AsyncProducer

    async def run() -> Rate:
        async with AsyncProducer(bootstrap) as producer:
            for _ in range(RECORDS // 4):
                await producer.send(TOPIC, VALUE)
            await producer.flush()
            watch = Stopwatch()
            for _ in range(RECORDS):
                await producer.send(TOPIC, VALUE)
            await producer.flush()
            return watch.rate()

    return _run(run)


def ours_table(bootstrap: str, _: int) -> Rate:
    import pyarrow as pa

    from ottla import Producer

    table = pa.table({"value": pa.array([VALUE] * TABLE_RECORDS)})
    with Producer(bootstrap) as producer:
        producer.send_table(TOPIC, table.slice(0, TABLE_RECORDS // 4), value="value").result(60)
        watch = Stopwatch(TABLE_RECORDS)
        producer.send_table(TOPIC, table, value="value").result(60)
        return watch.rate()


def kafka_python(bootstrap: str, _: int) -> Rate:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    )
    for _ in range(RECORDS // 4):
        producer.send(TOPIC, VALUE)
    producer.flush()
    watch = Stopwatch()
    for _ in range(RECORDS):
        producer.send(TOPIC, VALUE)
    producer.flush()
    rate = watch.rate()
    producer.close()
    return rate


def aiokafka(bootstrap: str, _: int) -> Rate:
    from aiokafka import AIOKafkaProducer

    async def run() -> Rate:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
        ) as producer:
            for _ in range(RECORDS // 4):
                await producer.send(TOPIC, VALUE)
            await producer.flush()
            watch = Stopwatch()
            for _ in range(RECORDS):
                await producer.send(TOPIC, VALUE)
            await producer.flush()
            return watch.rate()

    return _run(run)


def confluent(bootstrap: str, _: int) -> Rate:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for _ in range(RECORDS // 4):
        producer.produce(TOPIC, VALUE)
    producer.flush(30)
    watch = Stopwatch()
    for number in range(RECORDS):
        producer.produce(TOPIC, VALUE)
        if not number % 1_000:
            producer.poll(0)
    producer.flush(60)
    return watch.rate()


def _run(work: Callable[[], Coroutine[Any, Any, Rate]]) -> Rate:
    """Run a coroutine on uvloop, on which all asyncio clients are fastest."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


CLIENTS = (ours, ours_async, ours_table, kafka_python, aiokafka, confluent)


def run() -> Iterator[Figure]:
    with BrokerProcess() as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        rates: dict[str, list[Rate]] = {client.__name__: [] for client in CLIENTS}
        for _ in range(ROUNDS):
            for client in CLIENTS:
                rates[client.__name__] += in_processes(1, partial(client, broker.bootstrap))
    best = {name: max(rate.records_per_s for rate in found) for name, found in rates.items()}
    for name, found in rates.items():
        yield Figure(
            f"produce: {name}", best[name] / 1000, "thousand/s", _budget(name, best), at_least=True
        )
        yield Figure(f"   CPU: {name}", min(rate.cpu_us for rate in found), "µs/record")


def _budget(name: str, best: dict[str, float]) -> float | None:
    if name == "ours_table":
        return 10 * best["confluent"] / 1000
    return best["kafka_python"] / 1000 if name.startswith("ours") else None
