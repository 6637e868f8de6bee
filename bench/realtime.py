"""Latency of a record from topic to topic through Spark, in real-time mode and in micro-batches.

    stateless      a column expression
    Python map     a Python function for each record (real-time only)
    count          groupBy().count()
    window         the same in windows of one second, with a watermark
    micro-batch    the stateless query, at least once and exactly once
    Spark's Kafka connector   the stateless query in both modes; needs Maven
    Kafka Streams in Java     the same queries with linger.ms=0; needs Maven and javac

A record is measured from `send` to the consumer that reads the query's output. Lone records are
sent one after another, each when the one before it has arrived; at 1,000 records/s, records are
sent regardless of the output. Before, each system runs for some seconds at the same rate, so that
Java has compiled it, and the first quarter of each measurement is left out.

All run on the same broker of Ottla. `python -m bench realtime` prints the figures and a table of
them; `--quick` sends few records, to see that everything runs."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from compat.streams.run import compiled_class

from bench.load import create_topic
from bench.measure import Figure
from ottla import Consumer, Producer, TopicPartition
from ottla.testing.broker import BrokerProcess

LONE_RECORDS, QUICK_LONE_RECORDS = 300, 20
LONE_PAUSE_S = 0.02
RATE = 1_000
LONE_LIMIT_S = 40
"""Time after which no more lone records are sent: Spark's connector takes 600 ms for each."""
RATE_SECONDS, QUICK_RATE_SECONDS = 10, 2
WARM_UP_SECONDS, QUICK_WARM_UP_SECONDS = 8, 1
START_TIMEOUT_S = 180
MASTER = "local[4]"


def run(*, quick: bool = False) -> Iterator[Figure]:
    from compat.spark.run import connector_jars

    import ottla.spark

    source = str(Path(ottla.spark.__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    settings = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "1"}
    jars = connector_jars()
    if jars is None:
        print("Spark's Kafka connector is not available, its rows are missing", flush=True)
    else:
        settings["spark.jars"] = ",".join(jars)
    spark = ottla.spark.session(MASTER, **settings)
    spark.sparkContext.setLogLevel("OFF")
    try:
        with BrokerProcess() as broker, tempfile.TemporaryDirectory() as home:
            systems: list[tuple[str, System]] = [
                (name, _SparkQuery(spark, "ottla", query, name.startswith("real-time"), options))
                for name, query, options in QUERIES
            ]
            if jars is not None:
                for name, is_real_time in CONNECTOR_QUERIES:
                    systems.append(
                        (name, _SparkQuery(spark, "kafka", _stateless, is_real_time, {}))
                    )
            classes = compiled_class(Path(home), "Latency.java")
            if classes is None:
                print("Kafka Streams is not available, its rows are missing", flush=True)
            else:
                systems += [(name, _Java(classes, *how)) for name, *how in JAVA_PROGRAMS]
            for number, (name, system) in enumerate(systems):
                pair = _Pair(broker.bootstrap, f"{home}/{number}", number, quick=quick)
                with_budget = name == "real-time stateless" and not quick
                yield from pair.figures(name, system, with_budget=with_budget)
    finally:
        spark.stop()


def table(figures: list[Figure]) -> str:
    """Return the figures as a table in Markdown: a line per system, and columns of percentiles."""
    found: dict[str, dict[str, float]] = {}
    for each in figures:
        name, load, percentile = each.name.rsplit(", ", 2)
        found.setdefault(name, {})[f"{load}, {percentile}"] = each.value
    columns = [f"{load}, p{each}" for load in LOADS for each in PERCENTILES]
    heads = [each.replace(" records,", "").replace(" per second,", "/s") for each in columns]
    lines = [
        f"| ms | {' | '.join(heads)} |",
        f"|---|{'--:|' * len(columns)}",
        *(
            f"| {name} | {' | '.join(f'{values[each]:.1f}' for each in columns)} |"
            for name, values in found.items()
        ),
    ]
    return "\n".join(lines)


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
CONNECTOR_QUERIES = (
    ("Spark's Kafka connector, real-time stateless", True),
    ("Spark's Kafka connector, micro-batch at least once", False),
)
JAVA_PROGRAMS = (
    ("Kafka Streams in Java, stateless at least once", "stateless", "at_least_once"),
    ("Kafka Streams in Java, stateless exactly once", "stateless", "exactly_once_v2"),
    ("Kafka Streams in Java, count", "count", "at_least_once"),
    ("Kafka Streams in Java, window", "window", "at_least_once"),
)
PERCENTILES = (50, 90, 99)
LOADS = ("lone records", f"{RATE:,} per second")
_BUDGETS_MS = {50: 5.0, 99: 30.0}
"""For a quiet machine."""


class Process(Protocol):
    """A running system."""

    def failure(self) -> str | None: ...

    def stop(self) -> None: ...


class System(Protocol):
    """A system that passes records from one topic to another."""

    def start(self, bootstrap: str, source: str, target: str, home: str) -> Process: ...


@dataclass(frozen=True)
class _SparkQuery:
    spark: Any
    format: str
    query: Callable[[Any], Any]
    is_real_time: bool
    options: dict[str, str]

    def start(self, bootstrap: str, source: str, target: str, home: str) -> Process:
        given = {"kafka.bootstrap.servers": bootstrap}
        rows = self.spark.readStream.format(self.format).options(**given, subscribe=source)
        rows = rows.option("startingOffsets", "earliest").load()
        writer = self.query(rows).writeStream.format(self.format).options(**given, topic=target)
        writer = writer.options(checkpointLocation=home, **self.options)
        if self.is_real_time:
            writer = writer.outputMode("update").trigger(realTime="1 minute")
        return _RunningQuery(writer.start())


class _RunningQuery:
    def __init__(self, query: Any) -> None:
        self._query = query

    def failure(self) -> str | None:
        error = self._query.exception()
        return None if error is None else str(error)

    def stop(self) -> None:
        self._query.stop()


@dataclass(frozen=True)
class _Java:
    classes: str
    operator: str
    guarantee: str

    def start(self, bootstrap: str, source: str, target: str, home: str) -> Process:
        command = ["java", "-Xmx512m", "-cp", self.classes, "Latency", bootstrap, source, target]
        command += [home, self.operator, self.guarantee]
        return _RunningJava(subprocess.Popen(command, stderr=subprocess.DEVNULL))


class _RunningJava:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def failure(self) -> str | None:
        code = self._process.poll()
        return None if code is None else f"it ended with exit code {code}"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


class _Pair:
    """Two topics, and the measurement of a system between them."""

    def __init__(self, bootstrap: str, home: str, number: int, *, quick: bool) -> None:
        self._bootstrap = bootstrap
        self._home = home
        self._lone_records = QUICK_LONE_RECORDS if quick else LONE_RECORDS
        self._rate_seconds = QUICK_RATE_SECONDS if quick else RATE_SECONDS
        self._warm_up_seconds = QUICK_WARM_UP_SECONDS if quick else WARM_UP_SECONDS
        self._source, self._target = f"in-{number}", f"out-{number}"
        for topic in (self._source, self._target):
            create_topic(bootstrap, topic, 1)

    def figures(self, name: str, system: System, *, with_budget: bool) -> Iterator[Figure]:
        running = system.start(self._bootstrap, self._source, self._target, self._home)
        isolation: Any = {"isolation_level": "read_committed"}
        try:
            with (
                Consumer(self._bootstrap, **isolation) as consumer,
                Producer(self._bootstrap, linger_ms=0) as producer,
            ):
                consumer.assign([TopicPartition(self._target, 0)])
                consumer.seek_to_beginning()
                self._wait_for_the_first(running, producer, consumer)
                self._at_rate(producer, consumer, self._warm_up_seconds)
                lone = list(self._lone(producer, consumer))
                yield from _percentiles(f"{name}, {LOADS[0]}", lone, with_budget=with_budget)
                loaded = self._at_rate(producer, consumer, self._rate_seconds)
                yield from _percentiles(f"{name}, {LOADS[1]}", loaded, with_budget=False)
        finally:
            running.stop()

    def _wait_for_the_first(self, running: Process, producer: Producer, consumer: Consumer) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        producer.send(self._source, b"first")
        while not consumer.poll(timeout_s=0.5):
            if running.failure() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the system does not run: {running.failure()}")

    def _lone(self, producer: Producer, consumer: Consumer) -> Iterator[float]:
        end = time.perf_counter() + LONE_LIMIT_S
        for number in range(self._lone_records):
            time.sleep(LONE_PAUSE_S)
            sent = time.perf_counter()
            if sent > end:
                return
            value = b"lone-%d" % number
            producer.send(self._source, value)
            while not any(each.value == value for each in consumer.poll(timeout_s=30)):
                pass
            yield (time.perf_counter() - sent) * 1000

    def _at_rate(self, producer: Producer, consumer: Consumer, seconds: int) -> list[float]:
        count = RATE * seconds
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
    for percent in PERCENTILES:
        budget = _BUDGETS_MS.get(percent) if with_budget else None
        yield Figure(f"{name}, p{percent}", cuts[percent - 1], "ms", budget, at_least=False)
