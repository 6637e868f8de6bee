"""Spark over topics, end to end, on local[2]: rows per second read and written, and stream latency.

Reading: a topic of 2 partitions into Spark's noop sink, with all columns of the source. Writing:
rows made by Spark to a topic of 2 partitions, at least once. Latency: a record of a stream at 1,000
records/s, from its timestamp in the source topic until a consumer of the target topic has it,
at-least-once and exactly-once; and of lone records, of which each is sent when the one before has
arrived. The first round of each is a warm-up and does not count.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import create_topic
from bench.measure import Figure
from ottla.testing.broker import BrokerProcess

ROWS = {100: 2_000_000, 1_000: 400_000}
ROUNDS = 3
LATENCY_S = 20
LONE_RECORDS = 300
LONE_PAUSE_S = 0.05
"""Pause before each lone record, so that the query is idle when it arrives."""
RATE = 1_000
READ_BUDGET = {100: 1_200_000, 1_000: None}
WRITE_BUDGET = {100: 600_000, 1_000: None}


def run() -> Iterator[Figure]:
    import ottla.spark

    source = str(Path(ottla.spark.__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    spark = ottla.spark.session("local[2]")
    spark.sparkContext.setLogLevel("OFF")
    try:
        with BrokerProcess() as broker:
            for size in ROWS:
                yield from _throughput(spark, broker, size)
            for delivery in ("at-least-once", "exactly-once"):
                yield from _latency(spark, broker, delivery)
    finally:
        spark.stop()


def _throughput(spark: Any, broker: BrokerProcess, size: int) -> Iterator[Figure]:
    topic, rows = f"rows-{size}", ROWS[size]
    create_topic(broker.bootstrap, topic, 2)
    connection = {"kafka.bootstrap.servers": broker.bootstrap}
    frame = spark.range(0, rows, 1, 2).selectExpr(
        "cast(id as string) key", f"rpad(cast(id as string), {size}, 'x') value"
    )
    frame.write.format("noop").mode("overwrite").save()
    rates = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        frame.write.format("ottla").mode("append").options(**connection, topic=topic).save()
        rates.append(rows / (time.perf_counter() - start))
    yield Figure(f"spark write, {size} B values", max(rates), "rows/s", WRITE_BUDGET[size], True)
    read = spark.read.format("ottla").options(**connection, subscribe=topic).load()
    rates = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        read.write.format("noop").mode("overwrite").save()
        rates.append(rows * ROUNDS / (time.perf_counter() - start))
    yield Figure(f"spark read, {size} B values", max(rates), "rows/s", READ_BUDGET[size], True)


def _latency(spark: Any, broker: BrokerProcess, delivery: str) -> Iterator[Figure]:
    source, target = f"in-{delivery}", f"out-{delivery}"
    create_topic(broker.bootstrap, source, 1)
    create_topic(broker.bootstrap, target, 1)
    both = stream_times(
        spark, "ottla", broker.bootstrap, source, target, lone=LONE_RECORDS, delivery=delivery
    )
    cut = statistics.quantiles(both.steady, n=100)
    budget = 120 if delivery == "at-least-once" else None
    yield Figure(f"spark latency p50, {delivery}", cut[49], "ms", budget)
    yield Figure(f"spark latency p99, {delivery}", cut[98], "ms")
    cut = statistics.quantiles(both.lone, n=100)
    yield Figure(f"spark latency of a lone record p50, {delivery}", cut[49], "ms")
    yield Figure(f"spark latency of a lone record p99, {delivery}", cut[98], "ms")


class StreamTimes(NamedTuple):
    """Latencies of records through a stream, in milliseconds."""

    steady: list[float]
    lone: list[float]


def stream_times(
    spark: Any,
    format_: str,
    bootstrap: str,
    source: str,
    target: str,
    seconds: float = LATENCY_S,
    lone: int = LONE_RECORDS,
    **options: str,
) -> StreamTimes:
    """Return the latencies from topic to topic, through a query that changes nothing."""
    connection = {"kafka.bootstrap.servers": bootstrap}
    with tempfile.TemporaryDirectory() as home:
        query = (
            spark.readStream.format(format_)
            .options(**connection, subscribe=source)
            .load()
            .selectExpr("value")
            .writeStream.format(format_)
            .options(**connection, topic=target, checkpointLocation=home, **options)
            .start()
        )
        try:
            steady = _measured(bootstrap, source, target, round(seconds * RATE))
            return StreamTimes(steady, _measured_lone(bootstrap, source, target, lone))
        except AssertionError:
            print(query.status, query.lastProgress, query.exception())
            raise
        finally:
            query.stop()


def _measured(bootstrap: str, source: str, target: str, total: int) -> list[float]:
    """Return the latencies of the second half, in milliseconds; the first half is a warm-up."""
    from ottla import Consumer, Producer, TopicPartition

    def feed() -> None:
        with Producer(bootstrap, linger_ms=1) as producer:
            start = time.time()
            for number in range(total):
                ahead = start + number / RATE - time.time()
                if ahead > 0:
                    time.sleep(ahead)
                producer.send(source, b"%.6f" % time.time())

    feeder = threading.Thread(target=feed)
    found: list[float] = []
    with Consumer(bootstrap, isolation_level="read_committed", fetch_max_wait_ms=50) as consumer:
        tp = TopicPartition(target, 0)
        consumer.assign([tp])
        consumer.seek_to_beginning()
        with Producer(bootstrap) as producer:  # one record shows that the query runs
            deadline = time.monotonic() + 120
            while not consumer.poll(timeout_s=0.2):
                assert time.monotonic() < deadline, "the query is not running"
                producer.send(source, b"0")
        feeder.start()
        while len(found) < total:
            records = consumer.poll(timeout_s=5, max_records=10_000)
            now = time.time()
            if not records and not feeder.is_alive():
                break
            found += [(now - float(r.value)) * 1000 for r in records if r.value != b"0"]
    feeder.join()
    return found[len(found) // 2 :]


def _measured_lone(bootstrap: str, source: str, target: str, total: int) -> list[float]:
    """Return the latencies of records that are sent one after the other, in milliseconds."""
    from ottla import Consumer, Producer, TopicPartition

    found: list[float] = []
    with (
        Consumer(bootstrap, isolation_level="read_committed", fetch_max_wait_ms=50) as consumer,
        Producer(bootstrap, linger_ms=0) as producer,
    ):
        consumer.assign([TopicPartition(target, 0)])
        consumer.seek_to_end()
        consumer.position(TopicPartition(target, 0))
        for number in range(total):
            time.sleep(LONE_PAUSE_S)
            expected = b"lone %d" % number
            start = time.perf_counter()
            producer.send(source, expected)
            while not any(record.value == expected for record in consumer.poll(timeout_s=5)):
                assert time.perf_counter() < start + 60, "the record did not arrive"
            found.append((time.perf_counter() - start) * 1000)
    return found
