"""Queries with trigger(realTime=…): several partitions, restarts, state, and what is refused."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Reads, Topic

pytestmark = pytest.mark.timeout(600)
WAIT_S = 120.0
BATCH = "5 seconds"
"""Spark's minimum."""


class Output:
    """Consumer of a topic that a query writes."""

    def __init__(self, topic: Topic, query: Any) -> None:
        from ottla import Consumer, TopicPartition

        self._query = query
        self._consumer = Consumer(topic.broker.bootstrap)
        tps = [TopicPartition(topic.name, each) for each in range(topic.partition_count)]
        self._consumer.assign(tps)
        self._consumer.seek_to_beginning()
        self.values: list[str] = []

    def wait_for(self, *wanted: str) -> None:
        """Read until all these values have been written."""
        deadline = time.monotonic() + WAIT_S
        while not set(wanted) <= set(self.values):
            assert self._query.exception() is None, self._query.exception()
            assert time.monotonic() < deadline, (wanted, self.values)
            self.values += [each.value.decode() for each in self._consumer.poll(timeout_s=0.2)]

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def real_time(frame: Any, target: Topic, checkpoint: str, **options: str) -> Iterator[Any]:
    """Run a query, and yield it with a reader of what it writes."""
    query = (
        frame.writeStream.format("ottla")
        .options(**{"kafka.bootstrap.servers": target.broker.bootstrap, "topic": target.name})
        .options(checkpointLocation=checkpoint, **options)
        .outputMode("update")
        .trigger(realTime=BATCH)
        .start()
    )
    output = Output(target, query)
    try:
        yield query, output
    finally:
        output.close()
        query.stop()


def committed(checkpoint: str) -> dict[str, int]:
    """Return the offsets of the newest finished batch."""
    commits = [int(each.name) for each in Path(checkpoint, "commits").glob("[0-9]*")]
    if not commits:
        return {}
    text = Path(checkpoint, "offsets", str(max(commits))).read_text().splitlines()[-1]
    (offsets,) = json.loads(text).values()
    return dict(offsets)


def last_batch(checkpoint: str) -> int:
    return max(int(each.name) for each in Path(checkpoint, "commits").glob("[0-9]*"))


def source_ends() -> set[int]:
    """Return the processes below this one that read partitions."""
    found = set()
    for each in Path("/proc").iterdir():
        try:
            command = (each / "cmdline").read_bytes().split(b"\0")
            if b"ottla.spark.realtime.source_end" in command and _is_below(int(each.name)):
                found.add(int(each.name))
        except (OSError, ValueError):
            continue
    return found


def _is_below(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_query_reads_all_partitions_and_resumes_where_a_batch_ended(
    reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    source, target = make_topic(2), make_topic(1)
    rows = reads.stream({"subscribe": source.name, "startingOffsets": "earliest"})
    rows = rows.selectExpr("key", "concat(partition, '-', string(value)) value")
    source.fill(["a"], partition=0)
    with real_time(rows, target, checkpoint) as (_, output):
        output.wait_for("0-a")
        source.fill(["b", "c"], partition=1)
        output.wait_for("1-b", "1-c")
        source.fill(["d"], partition=0)
        output.wait_for("0-d")
        wait_until(lambda: committed(checkpoint) == {"0": 2, "1": 2})
        assert sorted(output.values) == ["0-a", "0-d", "1-b", "1-c"]
        readers, batch = source_ends(), last_batch(checkpoint)
        assert len(readers) == 2
        wait_until(lambda: last_batch(checkpoint) > batch + 1)
        assert source_ends() == readers  # the processes are kept over batches
    source.fill(["e"], partition=1)
    with real_time(rows, target, checkpoint) as (_, output):
        output.wait_for("1-e")
        assert sorted(output.values) == ["0-a", "0-d", "1-b", "1-c", "1-e"]


def test_query_stopped_in_its_first_batch_starts_where_that_batch_did(
    reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    source, target = make_topic(1), make_topic(1)
    source.fill(["before"])
    rows = reads.stream({"subscribe": source.name}).select("value")  # from the latest offset
    started = Path(checkpoint, "sources", "0", "realtime-initial-offset")
    with real_time(rows, target, checkpoint):
        wait_until(started.exists)
    source.fill(["while stopped"])
    with real_time(rows, target, checkpoint) as (_, output):
        output.wait_for("while stopped")
        assert output.values == ["while stopped"]


def test_aggregation_emits_every_change_and_keeps_its_state(
    spark: Any, reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    source, target = make_topic(1), make_topic(1)
    rows = reads.stream({"subscribe": source.name, "startingOffsets": "earliest"})
    counts = rows.groupBy("value").count().selectExpr("concat(string(value), count) value")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        source.fill(["a", "b", "a"])
        with real_time(counts, target, checkpoint) as (_, output):
            output.wait_for("a1", "b1", "a2")
            wait_until(lambda: committed(checkpoint) == {"0": 3})
        source.fill(["a"])
        with real_time(counts, target, checkpoint) as (_, output):
            output.wait_for("a3")
            assert output.values == ["a1", "b1", "a2", "a3"]
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_duplicates_are_dropped_also_after_a_restart(
    spark: Any, reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    source, target = make_topic(1), make_topic(1)
    rows = reads.stream({"subscribe": source.name, "startingOffsets": "earliest"})
    once = rows.dropDuplicates(["value"]).selectExpr("string(value) value")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        source.fill(["a", "b", "a", "c"])
        with real_time(once, target, checkpoint) as (_, output):
            output.wait_for("a", "b", "c")
            wait_until(lambda: committed(checkpoint) == {"0": 4})
        source.fill(["b", "d"])
        with real_time(once, target, checkpoint) as (_, output):
            output.wait_for("d")
            assert output.values == ["a", "b", "c", "d"]
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def failure(frame: Any, target: Topic, checkpoint: str, **options: str) -> str:
    with real_time(frame, target, checkpoint, **options) as (query, _):
        wait_until(lambda: not query.isActive)
        return str(query.exception())


def test_what_cannot_run_in_real_time_is_refused_by_name(
    reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    from pyspark.sql import functions as f

    source, target = make_topic(3), make_topic(1)
    given = {"subscribe": source.name}
    limited = reads.stream({**given, "maxOffsetsPerTrigger": 10}).select("value")
    assert "The option maxOffsetsPerTrigger applies to micro-batches only." in failure(
        limited, target, f"{checkpoint}-1"
    )
    plain = reads.stream(given).select("value")
    assert "needs a core for each partition that it reads: 3 partitions, 2 cores" in failure(
        plain, target, f"{checkpoint}-2"
    )
    some = {"assign": json.dumps({source.name: [0]})}
    one = reads.stream(some).select("value")
    assert "A real-time query writes at least once" in failure(
        one, target, f"{checkpoint}-3", delivery="exactly-once"
    )
    in_python = one.select(f.udf(bytes, "binary", useArrow=True)("value").alias("value"))
    assert "ArrowEvalPythonExec" in failure(in_python, target, f"{checkpoint}-4")


def test_a_query_stops_although_a_python_function_does_not_return(
    reads: Reads, make_topic: Callable[..., Topic], checkpoint: str, tmp_path: Path
) -> None:
    from ottla.spark.realtime.functions import function_column

    called = tmp_path / "called"

    def wait_forever(value: bytes) -> bytes:
        called.write_text(str(os.getpid()))
        threading.Event().wait()
        return value

    source, target = make_topic(1), make_topic(1)
    source.fill(["a"])
    rows = reads.stream({"subscribe": source.name, "startingOffsets": "earliest"})
    column = function_column(rows, wait_forever, "wait_forever", "binary", [rows["value"]])
    with real_time(rows.select(column.alias("value")), target, checkpoint) as (query, _):
        wait_until(called.exists)
        wait_until(lambda: called.read_text() != "")
        query.stop()
        assert not query.isActive
    process = Path("/proc", called.read_text())
    wait_until(lambda: not process.exists())


def test_an_error_of_a_python_function_ends_the_query(
    reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    from ottla.spark.realtime.functions import function_column

    source, target = make_topic(1), make_topic(1)
    source.fill(["one"])
    rows = reads.stream({"subscribe": source.name, "startingOffsets": "earliest"})
    column = function_column(rows, int, "int", "int", [rows["value"]])
    numbers = column.cast("string").alias("value")
    assert "ValueError: invalid literal for int()" in failure(
        rows.select(numbers), target, checkpoint
    )


def test_other_threads_of_the_program_find_the_format_too(
    spark: Any, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    found: list[str] = []

    def look() -> None:
        loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        found.append(str(loader.loadClass("ottla.DefaultSource").getName()))
        options = {"kafka.bootstrap.servers": topic.broker.bootstrap, "subscribe": topic.name}
        found.append(str(spark.read.format("ottla").options(**options).load().count()))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(WAIT_S)
    assert found == ["ottla.DefaultSource", "0"]
