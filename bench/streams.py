"""Stream applications end to end, exactly once, on local[2], with topics of 2 partitions.

    stateless          JSON parsed, filtered, mapped, written as JSON
    windowed count     records by key and minute, 1,000 and 100,000 keys; all changes are written
    stream–table join  JSON with a table of 1,000 keys
    Python map         a function that cannot be traced, over Arrow batches
    Python aggregation an initializer and an adder in Python, 100,000 keys

Figures are input rows/s from `start()` until everything is committed, including planning and the
first batch. A small application warms Spark up first.

Windowed counts are also compared to the same count in plain Spark, from the same topics into the
noop sink. The difference is the price of JSON, of the path through Python to the broker, and of
exactly once, independent of other load on the machine.

Where available, Quix Streams (Python record by record, at least once) runs on the same broker,
measured from its first record to its last, so without its startup. `OTTLA_BENCH_QUIX` names a
Python that has it; otherwise it is installed into a temporary directory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ottla.streams as st
from bench.load import create_topic
from bench.measure import Figure
from ottla.streams.app import DEFAULT_BATCH_RECORDS
from ottla.streams.run import COLUMNS
from ottla.testing.broker import BrokerProcess

ROWS = 4_000_000
FEWER_ROWS = 1_000_000
QUIX_ROWS = 100_000
BASE_MS = 1_767_225_600_000
SPREAD_MS = 10 * 60 * 1000
"""Range of event time: ten windows."""
ORDER = "id string, item string, amount double"
INSTALL_TIMEOUT_S = 300
QUIX_TIMEOUT_S = 600


def run() -> Iterator[Figure]:
    import ottla.spark

    source = str(Path(ottla.spark.__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    spark = ottla.spark.session("local[2]", **{"spark.sql.session.timeZone": "UTC"})
    spark.sparkContext.setLogLevel("OFF")
    try:
        with BrokerProcess() as broker, tempfile.TemporaryDirectory() as home:
            bench = _Bench(spark, broker.bootstrap, home)
            bench.fill()
            yield from bench.figures()
            yield from _quix(broker.bootstrap, home)
    finally:
        spark.stop()


class _Bench:
    def __init__(self, spark: Any, bootstrap: str, home: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._home = home

    def fill(self) -> None:
        """Write the topics of orders, named after their number of keys, and the table `items`."""
        for topic, keys, rows in (
            ("warm-up", 1_000, 200_000),
            ("orders-1000", 1_000, ROWS),
            ("orders-100000", 100_000, ROWS),
            ("orders-python", 100_000, FEWER_ROWS),
            ("quix-1000", 1_000, QUIX_ROWS),
            ("quix-100000", 100_000, QUIX_ROWS),
        ):
            value = (
                f"to_json(named_struct('id', string(id), 'item', concat('item-', id % {keys})"
                ", 'amount', cast(id % 200 as double) / 2))"
            )
            self._write(topic, rows, f"concat('item-', id % {keys})", value, SPREAD_MS)
        name = "to_json(named_struct('name', concat('name of ', id)))"
        for topic in ("items", "quix-items"):
            self._write(topic, 1_000, "concat('item-', id)", name, 1)

    def _write(self, topic: str, rows: int, key: str, value: str, spread_ms: int) -> None:
        create_topic(self._bootstrap, topic, 2)
        frame = self._spark.range(0, rows, 1, 2).selectExpr(
            f"{key} key", f"{value} value",
            f"timestamp_millis({BASE_MS} + cast(id * {spread_ms} / {rows} as bigint)) timestamp",
        )  # fmt: skip
        options = {"kafka.bootstrap.servers": self._bootstrap, "topic": topic}
        frame.write.format("ottla").mode("append").options(**options).save()

    def figures(self) -> Iterator[Figure]:
        self._rate("warm-up", 200_000, stateless, "warmed")
        self._rate("warm-up", 200_000, windowed_count, "warmed-windows")
        for name, topic, rows, build, budget in (
            ("stateless (JSON filter, map)", "orders-1000", ROWS, stateless, None),
            ("windowed count, 1,000 keys", "orders-1000", ROWS, windowed_count, 500_000),
            ("windowed count, 100,000 keys", "orders-100000", ROWS, windowed_count, 500_000),
            ("stream-table join", "orders-1000", ROWS, table_join, None),
            ("Python map", "orders-python", FEWER_ROWS, python_map, None),
            ("Python aggregation, 100,000 keys", "orders-python", FEWER_ROWS, python_aggregation,
             100_000),
        ):  # fmt: skip
            rate = self._rate(topic, rows, build, f"out-{name.partition(' (')[0]}-{topic}")
            yield Figure(f"streams {name}", rate, "rows/s", budget, True)
            if build is windowed_count:
                yield Figure(
                    "… with Spark's own connector and no sink", rate / self._plain_rate(topic), "×"
                )

    def _rate(self, topic: str, rows: int, build: Callable[..., None], name: str) -> float:
        from ottla.streams.run import start

        target = "".join(letter if letter.isalnum() else "-" for letter in name)
        create_topic(self._bootstrap, target, 2)
        app = st.App(target, bootstrap=self._bootstrap, state_dir=self._home)
        build(app, topic, target)
        began = time.perf_counter()
        running = start(app.application(), self._spark)
        try:
            running.process_all_available()
            return rows / (time.perf_counter() - began)
        finally:
            running.stop()

    def _plain_rate(self, topic: str) -> float:
        from pyspark.sql import functions as f

        options = {
            "kafka.bootstrap.servers": self._bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            "maxOffsetsPerTrigger": str(DEFAULT_BATCH_RECORDS),
        }
        reader = self._spark.readStream.format("ottla").schema(COLUMNS).options(**options)
        rows = reader.load().withWatermark("timestamp", "1 hour")
        windows = rows.groupBy(f.window("timestamp", "1 minute"), "key")
        counts = windows.agg(f.count("value"), f.max("timestamp"))
        writer = counts.writeStream.format("noop").outputMode("update")
        began = time.perf_counter()
        query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=self._home)).start()
        try:
            query.processAllAvailable()
            return ROWS / (time.perf_counter() - began)
        finally:
            query.stop()


def stateless(app: st.App, source: str, target: str) -> None:
    orders = app.stream(source, value=st.Json(ORDER))
    big = orders.filter(lambda o: o.amount > 10)
    big.map_values(lambda o: {"item": o.item, "cents": o.amount * 100}).to(target)


def windowed_count(app: st.App, source: str, target: str) -> None:
    rows = app.stream(source, value=st.Bytes)
    rows.group_by_key().windowed(st.tumbling("1 minute", grace="1 hour")).count().to(target)


def table_join(app: st.App, source: str, target: str) -> None:
    orders = app.stream(source, value=st.Json(ORDER))
    items = app.table("items", value=st.Json("name string"))
    orders.join(items, lambda o, i: {"amount": o.amount, "name": i.name}).to(target)


def python_map(app: st.App, source: str, target: str) -> None:
    rows = app.stream(source, value=st.String)
    rows.map_values(lambda text: f"{text[:20]}…", schema="string").to(target)


def python_aggregation(app: st.App, source: str, target: str) -> None:
    orders = app.stream(source, value=st.Json(ORDER))
    orders.group_by_key().aggregate(
        lambda: {"n": 0, "most": 0.0},
        lambda found, order: {"n": found["n"] + 1, "most": max(found["most"], order.amount)},
        schema="n bigint, most double",
    ).to(target)  # fmt: skip


# ------------------------------------------------------------------------------------------- Quix


def _quix(bootstrap: str, home: str) -> Iterator[Figure]:
    python = _python_with_quix(home)
    if python is None:
        print("Quix Streams: skipped, because it is not installed and the installation failed")
        return
    program = str(Path(__file__).with_name("quix_streams.py"))
    for name, topic in (
        ("stateless", "quix-1000"),
        ("windowed-count", "quix-1000"),
        ("windowed-count", "quix-100000"),
        ("table-join", "quix-1000"),
        ("map", "quix-1000"),
        ("aggregation", "quix-100000"),
    ):
        result = subprocess.run(
            [python, program, bootstrap, name, topic, home],
            capture_output=True, text=True, timeout=QUIX_TIMEOUT_S, check=False,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )  # fmt: skip
        lines = result.stdout.strip().splitlines()
        if result.returncode or not lines:
            print(f"Quix Streams, {name} of {topic}: failed: {result.stderr.strip()[-300:]}")
            continue
        figures_line = json.loads(lines[-1])
        yield Figure(f"Quix Streams {name}, {topic}", figures_line["rows_per_second"], "rows/s")


def _python_with_quix(home: str) -> str | None:
    named = os.environ.get("OTTLA_BENCH_QUIX")
    for python in filter(None, (named, sys.executable)):
        if _has_quix(python):
            return python
    place = Path(home, "quix")
    python = str(place / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [python, "-m", "pip", "install", "--quiet", "quixstreams"],
    ):
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return None
        if done.returncode:
            return None
    return python


def _has_quix(python: str) -> bool:
    done = subprocess.run([python, "-c", "import quixstreams"], capture_output=True, check=False)
    return done.returncode == 0
