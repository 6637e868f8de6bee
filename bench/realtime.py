"""Latency of a record from topic to topic through Spark, in real-time mode and in micro-batches.

    stateless      a column expression
    Python map     a Python function for each record (real-time only)
    count          groupBy().count()
    window         the same in windows of one second, with a watermark
    micro-batch    the stateless query, at least once and exactly once

A record is measured from `send` to the consumer that reads the query's output. Lone records are
sent one after another, each when the one before it has arrived; at 1,000 records/s, records are
sent regardless of the output. The first quarter warms up and is left out."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.load import create_topic
from bench.measure import Figure
from ottla import Consumer, Producer, TopicPartition
from ottla.testing.broker import BrokerProcess

LONE_RECORDS = 300
LONE_PAUSE_S = 0.02
RATE = 1_000
RATE_SECONDS = 15
START_TIMEOUT_S = 180
MASTER = "local[4]"


def run() -> Iterator[Figure]:
    import ottla.spark

    source = str(Path(ottla.spark.__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "1"}
    spark = ottla.spark.session(MASTER, **settings)
    spark.sparkContext.setLogLevel("OFF")
    try:
        with BrokerProcess() as broker, tempfile.TemporaryDirectory() as home:
            for number, (name, query, options) in enumerate(QUERIES):
                pair = _Pair(spark, broker.bootstrap, f"{home}/{number}", number)
                with_budget = name == "real-time stateless"
                yield from pair.figures(name, query, options, with_budget=with_budget)
    finally:
        spark.stop()


# ---------------------------------------------------------------------------------- the queries


def _stateless(rows: Any) -> Any:
    return rows.selectExpr("key", "cast(concat(string(value), '') as binary) value")


def _python_map(rows: Any) -> Any:
    from ottla.spark.realtime.functions import function_column

    call = function_column(rows, bytes, "copy", "binary", [rows["value"]])
    return rows.select("key", call.alias("value"))


def _count(rows: Any) -> Any:
    return rows.groupBy("value").count().select("value")


def _window(rows: Any) -> Any:
    from pyspark.sql import functions as f

    timed = rows.withWatermark("timestamp", "10 seconds")
    return timed.groupBy(f.window("timestamp", "1 second"), "value").count().select("value")


QUERIES: tuple[tuple[str, Callable[[Any], Any], dict[str, str]], ...] = (
    ("real-time stateless", _stateless, {}),
    ("real-time Python map", _python_map, {}),
    ("real-time count", _count, {}),
    ("real-time window", _window, {}),
    ("micro-batch at least once", _stateless, {"delivery": "at-least-once"}),
    ("micro-batch exactly once", _stateless, {"delivery": "exactly-once"}),
)
_BUDGETS_MS = {50: 5.0, 99: 30.0}
"""For a quiet machine."""


class _Pair:
    """Two topics, and the query between them."""

    def __init__(self, spark: Any, bootstrap: str, home: str, number: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._home = home
        self._source, self._target = f"in-{number}", f"out-{number}"
        for topic in (self._source, self._target):
            create_topic(bootstrap, topic, 1)

    def figures(
        self,
        name: str,
        query: Callable[[Any], Any],
        options: dict[str, str],
        *,
        with_budget: bool,
    ) -> Iterator[Figure]:
        given = {"kafka.bootstrap.servers": self._bootstrap}
        rows = self._spark.readStream.format("ottla").options(**given, subscribe=self._source)
        rows = rows.option("startingOffsets", "earliest").load()
        writer = query(rows).writeStream.format("ottla").options(**given, topic=self._target)
        writer = writer.options(checkpointLocation=self._home, **options)
        if name.startswith("real-time"):
            writer = writer.outputMode("update").trigger(realTime="1 minute")
        running = writer.start()
        isolation: Any = {"isolation_level": "read_committed"}
        try:
            with (
                Consumer(self._bootstrap, **isolation) as consumer,
                Producer(self._bootstrap, linger_ms=0) as producer,
            ):
                consumer.assign([TopicPartition(self._target, 0)])
                consumer.seek_to_beginning()
                self._warm_up(running, producer, consumer)
                lone = list(self._lone(producer, consumer))
                yield from _percentiles(f"{name}, lone records", lone, with_budget=with_budget)
                loaded = self._at_rate(producer, consumer)
                yield from _percentiles(f"{name}, {RATE:,}/s", loaded, with_budget=False)
        finally:
            running.stop()

    def _warm_up(self, running: Any, producer: Producer, consumer: Consumer) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        producer.send(self._source, b"first")
        while not consumer.poll(timeout_s=0.5):
            if running.exception() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the query does not run: {running.exception()}")

    def _lone(self, producer: Producer, consumer: Consumer) -> Iterator[float]:
        for number in range(LONE_RECORDS):
            time.sleep(LONE_PAUSE_S)
            sent = time.perf_counter()
            value = b"lone-%d" % number
            producer.send(self._source, value)
            while not any(each.value == value for each in consumer.poll(timeout_s=30)):
                pass
            yield (time.perf_counter() - sent) * 1000

    def _at_rate(self, producer: Producer, consumer: Consumer) -> list[float]:
        count = RATE * RATE_SECONDS
        sent = [0.0] * count

        def send() -> None:
            start = time.perf_counter()
            for number in range(count):
                pause = start + number / RATE - time.perf_counter()
                if pause > 0:
                    time.sleep(pause)
                sent[number] = time.perf_counter()
                producer.send(self._source, b"%d" % number)

        thread = threading.Thread(target=send)
        thread.start()
        taken: list[float] = []
        while len(taken) < count:
            records = consumer.poll(timeout_s=30)
            now = time.perf_counter()
            taken += [(now - sent[int(each.value)]) * 1000 for each in records]
            if not records:
                raise RuntimeError(f"{count - len(taken)} records are missing")
        thread.join()
        return taken


def _percentiles(name: str, taken_ms: list[float], *, with_budget: bool) -> Iterator[Figure]:
    cuts = statistics.quantiles(taken_ms[len(taken_ms) // 4 :], n=100)
    for percent in (50, 90, 99):
        budget = _BUDGETS_MS.get(percent) if with_budget else None
        yield Figure(f"{name}, p{percent}", cuts[percent - 1], "ms", budget, at_least=False)
