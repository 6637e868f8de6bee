"""Run PySpark programs with `.format("kafka")` and `.format("ottla")`, and compare the results.

    python -m compat.spark.run [--on-kafka] [--bench]

Spark's own connector comes from Maven Central. The broker is ours, or with --on-kafka Apache
Kafka's; there, the tests of the exactly-once protocol run as well. With --bench, print the rows per
second of both connectors.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from compat import jars as kafka_jars  # noqa: E402
from compat.apache_kafka import ApacheKafka  # noqa: E402
from compat.java import Java  # noqa: E402
from ottla.testing.broker import BrokerProcess  # noqa: E402

HERE = Path(__file__).parent
CACHE = HERE.parent / ".cache"
FORMATS = ("kafka", "ottla")
OLDER = (("4.2.0", "4.0.0"), ("4.0.0", "4.0.0"))
"""Versions of the connector and of its token provider."""
NEEDED = ("commons-pool2", "kafka-clients", "spark-sql-kafka", "spark-token-provider")
WAIT_S = 600
Program = Callable[[Any, str, str, str], Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on-kafka", action="store_true")
    parser.add_argument("--bench", action="store_true")
    arguments = parser.parse_args()
    jars = connector_jars()
    if jars is None:
        print(
            "skipped: Spark's Kafka connector is not available (Maven or Maven Central is missing)"
        )
        return 0
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    import ottla.spark

    with ExitStack() as stack:
        bootstrap = stack.enter_context(_broker(on_kafka=arguments.on_kafka)).bootstrap
        spark = ottla.spark.session(
            "local[2]", **{"spark.jars": ",".join(jars), "spark.sql.session.timeZone": "UTC"}
        )
        spark.sparkContext.setLogLevel("OFF")
        stack.callback(spark.stop)
        if arguments.bench:
            _bench(spark, bootstrap)
            return 0
        failed = _compare(spark, bootstrap)
        if arguments.on_kafka:
            failed += _exactly_once(bootstrap)
        return 1 if failed else 0


def _broker(*, on_kafka: bool) -> Any:
    if not on_kafka:
        return BrokerProcess()
    directory = kafka_jars.directory()
    java = Java(kafka_jars.java_command(), str(directory / "*"), directory / "classes.jsa")
    return ApacheKafka(java, Path(tempfile.mkdtemp(prefix="ottla-compat-spark-")))


def _exactly_once(bootstrap: str) -> int:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/spark/test_exactly_once.py"],
        cwd=ROOT,
        env={**os.environ, "OTTLA_TEST_BOOTSTRAP": bootstrap},
        check=False,
    )
    return int(result.returncode != 0)


def connector_jars() -> list[str] | None:
    """Return the jars of the connector for this Spark, or of the newest complete older version."""
    import pyspark

    maven = shutil.which("mvn")
    for version, token_version in ((pyspark.__version__, pyspark.__version__), *OLDER):
        target = CACHE / f"spark-kafka-{version}"
        if not target.exists():
            if maven is None:
                return None
            result = subprocess.run(
                [
                    maven, "--quiet", "--batch-mode", "--file", str(HERE / "pom.xml"),
                    f"-Dspark.version={version}", f"-Dtoken.version={token_version}",
                    f"-DoutputDirectory={target}", "-DincludeScope=runtime",
                    "dependency:copy-dependencies",
                ],
                check=False,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
            if result.returncode:
                shutil.rmtree(target, ignore_errors=True)
                continue
        print(f"Spark {pyspark.__version__}, its Kafka connector {version}")
        jars = sorted(target.glob("*.jar"))
        # Spark itself includes the others.
        return [str(jar) for jar in jars if jar.name.startswith(NEEDED)]
    return None


# --------------------------------------------------------------------------------------- programs


def _options(bootstrap: str, **more: object) -> dict[str, Any]:
    return {"kafka.bootstrap.servers": bootstrap, **more}


def all_columns(spark: Any, fmt: str, bootstrap: str, topic: str) -> Any:
    options = _options(bootstrap, subscribe=topic, includeHeaders="true")
    frame = spark.read.format(fmt).options(**options).load()
    rows = sorted(map(repr, frame.collect()))
    return frame.schema.simpleString(), rows


def by_offsets(spark: Any, fmt: str, bootstrap: str, topic: str) -> Any:
    options = _options(
        bootstrap,
        subscribe=topic,
        startingOffsets=f'{{"{topic}": {{"0": 5, "1": -2, "2": 11}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 90, "1": 20, "2": -1}}}}',
    )
    return sorted(map(repr, spark.read.format(fmt).options(**options).load().collect()))


def by_time(spark: Any, fmt: str, bootstrap: str, topic: str) -> Any:
    options = _options(
        bootstrap, subscribe=topic, startingTimestamp="1700000020000",
        endingTimestamp="1700000070000",
    )  # fmt: skip
    return sorted(map(repr, spark.read.format(fmt).options(**options).load().collect()))


def split(spark: Any, fmt: str, bootstrap: str, topic: str) -> Any:
    options = _options(bootstrap, subscribe=topic, minPartitions="7")
    rows = spark.read.format(fmt).options(**options).load()
    parts = rows.rdd.mapPartitions(lambda part: [sorted((r.partition, r.offset) for r in part)])
    return sorted(parts.collect())


def filtered(spark: Any, fmt: str, bootstrap: str, topic: str) -> Any:
    options = _options(bootstrap, subscribePattern=f"{topic[:-1]}.")
    frame = spark.read.format(fmt).options(**options).load()
    condition = "partition = 1 and offset > 10 and timestamp >= timestamp_millis(1700000030000)"
    return sorted(map(repr, frame.where(condition).selectExpr("cast(value as string)").collect()))


def stream(spark: Any, fmt: str, bootstrap: str, topic: str) -> Any:
    """Return the rows batch by batch: both connectors must apply the limit in the same way."""
    batches: dict[int, Any] = {}

    def take(frame: Any, number: int) -> None:
        batches[number] = sorted((r.partition, r.offset) for r in frame.collect())

    with tempfile.TemporaryDirectory() as home:
        query = (
            spark.readStream.format(fmt)
            .options(**_options(
                bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="70"
            ))
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", home)
            .trigger(availableNow=True)
            .start()
        )  # fmt: skip
        assert query.awaitTermination(WAIT_S)
    return batches


def written(spark: Any, fmt: str, bootstrap: str, topic: str) -> Any:
    target = f"{topic}-to-{fmt}"
    _create(bootstrap, target, 5)
    frame = spark.range(500).selectExpr(
        "cast(id as string) key", "concat('v', id) value",
        "array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) headers",
    )  # fmt: skip
    # Spark supports only this mode for Python sinks; its own connector supports both.
    frame.write.format(fmt).mode("append").options(**_options(bootstrap, topic=target)).save()
    rows = (
        spark.read.format("kafka")
        .options(**_options(bootstrap, subscribe=target, includeHeaders="true"))
        .load()
        .select("key", "value", "partition", "headers")
    )
    return sorted(map(repr, rows.collect()))


def real_time(spark: Any, fmt: str, bootstrap: str, topic: str) -> Any:
    """Return what a real-time query writes in two runs; at least once, so without duplicates."""
    from ottla import Consumer, Producer, TopicPartition

    source, target = f"{topic}-from-{fmt}", f"{topic}-fast-{fmt}"
    for each in (source, target):
        _create(bootstrap, each, 1)
    found: set[bytes | None] = set()
    with tempfile.TemporaryDirectory() as home, Consumer(bootstrap) as consumer:
        consumer.assign([TopicPartition(target, 0)])
        consumer.seek_to_beginning()
        for run in range(2):
            rows = spark.readStream.format(fmt).options(**_options(bootstrap, subscribe=source))
            rows = rows.option("startingOffsets", "earliest").load()
            query = (
                rows.selectExpr("upper(string(value)) value")
                .writeStream.format(fmt)
                .options(**_options(bootstrap, topic=target, checkpointLocation=home))
                .outputMode("update")
                .trigger(realTime="5 seconds")
                .start()
            )
            try:
                with Producer(bootstrap) as producer:
                    for number in range(20):
                        producer.send(source, b"value-%d-%d" % (run, number))
                deadline = time.monotonic() + WAIT_S
                while len(found) < 20 * (run + 1):
                    assert query.exception() is None, query.exception()
                    assert time.monotonic() < deadline, found
                    found |= {each.value for each in consumer.poll(timeout_s=1)}
            finally:
                query.stop()
    return sorted(map(str, found))


PROGRAMS: tuple[Program, ...] = (
    all_columns, by_offsets, by_time, split, filtered, stream, written, real_time,
)  # fmt: skip


def _compare(spark: Any, bootstrap: str) -> int:
    topic = f"compared-{os.getpid()}a"
    _fill(bootstrap, topic)
    failed = 0
    for program in PROGRAMS:
        results = [program(spark, fmt, bootstrap, topic) for fmt in FORMATS]
        same = results[0] == results[1]
        failed += not same
        print(f"{'same' if same else 'DIFFERENT':10} {program.__name__}", flush=True)
        if not same:
            for fmt, result in zip(FORMATS, results, strict=True):
                print(f"  {fmt}: {str(result)[:1500]}")
    return failed


def _create(bootstrap: str, topic: str, partitions: int) -> None:
    from ottla import Admin, NewTopic

    with Admin(bootstrap) as admin:
        # Old records must not expire.
        admin.create_topics(NewTopic(topic, partitions, configs={"retention.ms": "-1"}))


def _fill(bootstrap: str, topic: str) -> None:
    from ottla import Producer

    _create(bootstrap, topic, 3)
    with Producer(bootstrap, compression_type="zstd") as producer:
        for number in range(300):
            producer.send(
                topic,
                None if number % 50 == 7 else b"value-%d" % number,
                key=None if number % 3 else b"key-%d" % number,
                headers=[("n", b"%d" % number)] if number % 2 else None,
                partition=number % 3,
                timestamp=1_700_000_000_000 + number * 1_000 // 3,
            )
        producer.flush()


def _bench(spark: Any, bootstrap: str) -> None:
    rows = 2_000_000
    frame = spark.range(0, rows, 1, 2).selectExpr(
        "cast(id as string) key", "rpad(cast(id as string), 100, 'x') value"
    )
    for fmt in FORMATS:
        topic = f"bench-{os.getpid()}-{fmt}"
        _create(bootstrap, topic, 2)
        for round_ in range(2):
            start = time.perf_counter()
            frame.write.format(fmt).mode("append").options(
                **_options(bootstrap, topic=topic)
            ).save()
            rate = rows / (time.perf_counter() - start)
            print(f"{fmt:6} write round {round_}: {rate:12,.0f} rows/s", flush=True)
    for round_ in range(3):
        for fmt in FORMATS:
            options = _options(bootstrap, subscribe=f"bench-{os.getpid()}-{fmt}")
            start = time.perf_counter()
            spark.read.format(fmt).options(**options).load().write.format("noop").mode(
                "overwrite"
            ).save()
            rate = 2 * rows / (time.perf_counter() - start)
            print(f"{fmt:6} read  round {round_}: {rate:12,.0f} rows/s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
