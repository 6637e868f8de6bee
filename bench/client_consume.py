"""Records per second into Python: our consumer and others, in one run.

All clients read the same topic with a few partitions, values of 100 bytes without keys in batches
of 128 KB, from the beginning without a group, with fetches of at most 1 MB per partition. Time is
measured from the first record to the last. Each client runs in its own process. Rounds are
interleaved, because the machine is noisy, and the best round of each client counts. The CPU time
per record, of all threads, shows the same with less noise.

Record by record, our budget is the fastest client written in Python; for tables, it is ten times
confluent-kafka's `consume` with its defaults. With these, it spends much of its time waiting, so
the ratio to confluent-kafka without the waits is reported as well. Both figures of a ratio are from
the same round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from statistics import fmean, harmonic_mean
from typing import Any

from bench.client_produce import Rate
from bench.load import create_topic, in_processes
from bench.measure import Figure
from ottla.testing.broker import BrokerProcess

RECORDS = 500_000
TABLE_PASSES = 8
"""Number of passes over the topic: a single one takes too little time to be measured."""
ROUNDS = 3
PARTITIONS = 4
VALUE = bytes(range(100))
TOPIC = "consumed"
BATCH_BYTES = 131_072
FETCH_BYTES = 1_048_576
MANY = 5_000
"""Maximum number of records per poll."""
TIMES_CONFLUENT = 10


class Stopwatch:
    """Stopwatch that starts with the first record."""

    def __init__(self) -> None:
        self._left = self._records = RECORDS
        self._is_running = False

    def count_records(self, count: int) -> bool:
        """Count records, and return whether there are more to come."""
        if count and not self._is_running:
            self._is_running = True
            self._start, self._cpu = time.perf_counter(), time.process_time()
            self._records -= count  # records of the first poll are not counted
            self._left = self._records
        else:
            self._left -= count
        return self._left > 0

    def rate(self) -> Rate:
        elapsed, cpu = time.perf_counter() - self._start, time.process_time() - self._cpu
        return Rate(self._records / elapsed, cpu / self._records * 1e6)


def ours(bootstrap: str, _: int) -> Rate:
    from ottla import Consumer

    watch = Stopwatch()
    with Consumer(bootstrap, auto_offset_reset="earliest", max_poll_records=MANY) as consumer:
        consumer.assign([(TOPIC, number) for number in range(PARTITIONS)])
        while watch.count_records(len(consumer.poll())):
            pass
        return watch.rate()


def ours_iterating(bootstrap: str, _: int) -> Rate:
    from ottla import Consumer

    watch = Stopwatch()
    with Consumer(bootstrap, auto_offset_reset="earliest", max_poll_records=MANY) as consumer:
        consumer.assign([(TOPIC, number) for number in range(PARTITIONS)])
        for _ in consumer:
            if not watch.count_records(1):
                break
        return watch.rate()


def ours_async(bootstrap: str, _: int) -> Rate:
    from ottla import AsyncConsumer

    async def run() -> Rate:
        watch = Stopwatch()
        async with AsyncConsumer(
            bootstrap, auto_offset_reset="earliest", max_poll_records=MANY
        ) as consumer:
            consumer.assign([(TOPIC, number) for number in range(PARTITIONS)])
            while watch.count_records(len(await consumer.poll())):
                pass
            return watch.rate()

    return _run(run)


def ours_as_tables(bootstrap: str, _: int) -> Rate:
    """Read the topic as tables, with a new consumer for each pass.

    With the same consumer, a seek would wait for the fetch that is pending at the end of the log.
    """
    rates = [_pass_as_tables(bootstrap) for _ in range(TABLE_PASSES)]
    return Rate(
        harmonic_mean(rate.records_per_s for rate in rates), fmean(rate.cpu_us for rate in rates)
    )


def _pass_as_tables(bootstrap: str) -> Rate:
    from ottla import Consumer

    watch = Stopwatch()
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(TOPIC, number) for number in range(PARTITIONS)])
        while watch.count_records(consumer.poll_table(60).num_rows):
            pass
        return watch.rate()


def kafka_python(bootstrap: str, _: int) -> Rate:
    from kafka import KafkaConsumer, TopicPartition

    watch = Stopwatch()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=MANY
    )
    consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
    while watch.count_records(sum(map(len, consumer.poll(timeout_ms=1000).values()))):
        pass
    rate = watch.rate()
    consumer.close()
    return rate


def aiokafka(bootstrap: str, _: int) -> Rate:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> Rate:
        watch = Stopwatch()
        async with AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_poll_records=MANY
        ) as consumer:
            consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
            while True:
                found = await consumer.getmany(timeout_ms=1000)
                if not watch.count_records(sum(map(len, found.values()))):
                    return watch.rate()

    return _run(run)


def confluent(bootstrap: str, _: int) -> Rate:
    """Consume with default settings.

    Once 100,000 records of a partition are queued, the client pauses fetching for up to a second
    (queued.min.messages, fetch.queue.backoff.ms), and the reader may run out of records.
    """
    return _confluent(bootstrap, {})


def confluent_without_pauses(bootstrap: str, _: int) -> Rate:
    return _confluent(bootstrap, {"queued.min.messages": 10 * RECORDS, "fetch.queue.backoff.ms": 1})


def _confluent(bootstrap: str, settings: dict[str, Any]) -> Rate:
    from confluent_kafka import Consumer, TopicPartition

    watch = Stopwatch()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.max.messages.kbytes": 200_000,
            **settings,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    while watch.count_records(len(consumer.consume(MANY, 1.0))):
        pass
    rate = watch.rate()
    consumer.close()
    return rate


def _run(work: Callable[[], Coroutine[Any, Any, Rate]]) -> Rate:
    """Run a coroutine on uvloop, on which all asyncio clients are fastest."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


def fill(bootstrap: str, _: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 1_000_000,
            "linger.ms": 100,
            "queue.buffering.max.messages": RECORDS,
        }
    )
    for number in range(RECORDS):
        producer.produce(TOPIC, VALUE, partition=number // 1_000 % PARTITIONS)
        if not number % 1_000:
            producer.poll(0)
    producer.flush(120)


CLIENTS = (
    ours, ours_iterating, ours_async, ours_as_tables, kafka_python, aiokafka,
    confluent, confluent_without_pauses,
)  # fmt: skip


def run() -> Iterator[Figure]:
    with BrokerProcess() as broker:
        create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        in_processes(1, partial(fill, broker.bootstrap))
        rates: dict[str, list[Rate]] = {client.__name__: [] for client in CLIENTS}
        for _ in range(ROUNDS):
            for client in CLIENTS:
                rates[client.__name__] += in_processes(1, partial(client, broker.bootstrap))
    best = {name: max(rate.records_per_s for rate in found) for name, found in rates.items()}
    for name, found in rates.items():
        is_held = name.startswith("ours") and name != "ours_as_tables"
        budget = best["kafka_python"] / 1000 if is_held else None
        yield Figure(f"consume: {name}", best[name] / 1000, "thousand/s", budget, True)
        yield Figure(f"   CPU: {name}", min(rate.cpu_us for rate in found), "µs/record")
    for rival, times in (("confluent", TIMES_CONFLUENT), ("confluent_without_pauses", None)):
        ratio = max(
            tables.records_per_s / singly.records_per_s
            for tables, singly in zip(rates["ours_as_tables"], rates[rival], strict=True)
        )
        yield Figure(f"consume: tables over {rival}", ratio, "times", times, True)
