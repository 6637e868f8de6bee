"""Our Spark source and sink compared to Spark's own Kafka connector.

Both run in one session, on the same topics of Apache Kafka's broker. The figures are rows per
second read from a topic into the noop sink and written to a topic, and the latency of a record
through a query from topic to topic: at 1,000 records/s, and of lone records, each sent when the one
before has arrived. Delivery is at least once, the only mode of Spark's own sink.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

from bench.peers import topics
from bench.peers.brokers import both
from bench.peers.rows import Row, Rows
from bench.peers.scale import Scale
from bench.spark import stream_times

FORMATS = ("kafka", "ottla")
PARTITIONS = 2


def run(scale: Scale) -> list[Row]:
    from compat.spark.run import connector_jars

    import ottla.spark

    jars = connector_jars()
    if jars is None:
        raise RuntimeError("Spark's own Kafka connector is not available from Maven Central")
    (connector,) = [Path(each).stem for each in jars if "spark-sql-kafka" in each]
    source = str(Path(ottla.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    rows = Rows("spark")
    with both(start=False) as (_, kafka):
        kafka.start()
        spark = ottla.spark.session("local[2]", **{"spark.jars": ",".join(jars)})
        spark.sparkContext.setLogLevel("OFF")
        try:
            for size, count in scale.spark_rows.items():
                _measure(rows, spark, kafka.bootstrap, size, count, scale.rounds, connector)
            _measure_latency(rows, spark, kafka.bootstrap, scale, connector)
        finally:
            spark.stop()
    return rows.whole()


def _measure_latency(rows: Rows, spark: Any, bootstrap: str, scale: Scale, peer: str) -> None:
    for number in range(scale.rounds):
        for fmt in FORMATS if number % 2 else FORMATS[::-1]:
            source, target = f"in-{number}-{fmt}", f"out-{number}-{fmt}"
            topics.create(bootstrap, source, 1)
            topics.create(bootstrap, target, 1)
            options = {"delivery": "at-least-once"} if fmt == "ottla" else {}
            times = stream_times(
                spark, fmt, bootstrap, source, target, 2 * scale.latency_s, scale.lone_records,
                **options,
            )  # fmt: skip
            for what, found in (("a record", times.steady), ("a lone record", times.lone)):
                cut = statistics.quantiles(found, n=100)
                for name, at in (("p50", 49), ("p99", 98)):
                    rows.add(
                        f"{what} through a stream, {name}", "ms", cut[at], is_ours=fmt == "ottla",
                        higher_is_better=False, peer=peer,
                    )  # fmt: skip


def _measure(
    rows: Rows, spark: Any, bootstrap: str, size: int, count: int, rounds: int, peer: str
) -> None:
    connection = {"kafka.bootstrap.servers": bootstrap}
    for fmt in FORMATS:
        topics.create(bootstrap, f"written-{size}-{fmt}", PARTITIONS)
    topics.create(bootstrap, f"read-{size}", PARTITIONS)
    frame = spark.range(0, count, 1, PARTITIONS).selectExpr(
        "cast(id as string) key", f"rpad(cast(id as string), {size}, 'x') value"
    )
    frame.write.format("kafka").mode("append").options(**connection, topic=f"read-{size}").save()
    for number in range(rounds + 1):
        for fmt in FORMATS if number % 2 else FORMATS[::-1]:
            start = time.perf_counter()
            frame.write.format(fmt).mode("append").options(
                **connection, topic=f"written-{size}-{fmt}"
            ).save()
            written = count / (time.perf_counter() - start)
            start = time.perf_counter()
            spark.read.format(fmt).options(
                **connection, subscribe=f"read-{size}"
            ).load().write.format("noop").mode("overwrite").save()
            read = count / (time.perf_counter() - start)
            if number:
                is_ours = fmt == "ottla"
                for verb, rate in (("read", read), ("write", written)):
                    what = f"{verb}, {size} B"
                    rows.add(what, "thousand rows/s", rate / 1_000, is_ours=is_ours, peer=peer)
