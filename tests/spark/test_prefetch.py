"""Small batches of a stream: the planner fetches their records, and no task has to; no Spark."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.conftest import Topic

from ottla import Admin, Producer, TopicPartition
from ottla.spark.cluster_offsets import ClusterOffsets
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.plan import OffsetRange
from ottla.spark.prefetch import PREFETCH_BYTES
from ottla.spark.schema import source_schema
from ottla.spark.stream_source import TopicStreamReader


def options_for(topic: Topic, **more: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": topic.broker.bootstrap, "subscribe": topic.name}
    given["startingOffsets"] = "earliest"
    return source_options(given | more, is_streaming=True)


def reader(topic: Topic, **more: str) -> TopicStreamReader:
    return TopicStreamReader(options_for(topic, **more), source_schema(include_headers=False))


def values(batches: Any) -> list[bytes]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def plan(planner: TopicStreamReader) -> list[Any]:
    start = planner.initialOffset()
    return list(planner.partitions(start, planner.latestOffset(start, ReadAllAvailable())))


def test_one_request_returns_the_ends_and_the_records_up_to_them(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic(3)
    topic.fill(["a", "b", "c"])
    topic.fill(["d"], partition=1)
    zero, one, two = (TopicPartition(topic.name, each) for each in range(3))
    found = ClusterOffsets(options_for(topic)).prefetch({zero: 1, one: 0, two: 0})
    assert found is not None
    assert found.ends == {zero: 3, one: 1, two: 0}
    assert found.records_of(OffsetRange(topic.name, 0, 1, 3)) is not None
    assert found.records_of(OffsetRange(topic.name, 0, 0, 3)) is None
    assert found.records_of(OffsetRange(topic.name, 0, 1, 4)) is None
    assert found.records_of(OffsetRange(topic.name, 2, 0, 1)) is None


def test_the_planner_looks_up_offsets_if_a_position_does_not_exist(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic(2)
    topic.fill(["a", "b"])
    offsets, tp = ClusterOffsets(options_for(topic)), TopicPartition(topic.name, 0)
    assert offsets.prefetch({tp: 3}) is None
    assert offsets.prefetch({TopicPartition(topic.name, 7): 0}) is None
    with Admin(topic.broker.bootstrap) as admin:
        admin.delete_records({tp: 1})
    assert offsets.prefetch({tp: 0}) is None
    planner = reader(topic)
    assert planner.latestOffset({topic.name: {"0": 9}}, ReadAllAvailable()) == {
        topic.name: {"0": 2, "1": 0}
    }


def test_a_task_reads_small_batches_from_its_partition(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(2)
    topic.fill(["a", "b"])
    topic.fill(["c"], partition=1)
    planner = reader(topic)
    planned = plan(planner)
    assert [each.fetched is not None for each in planned] == [True, True]
    assert not isinstance(planner, _SimpleStreamReaderWrapper)
    nowhere = {"kafka.bootstrap.servers": "localhost:1", "subscribe": topic.name}
    task = TopicStreamReader(source_options(nowhere, is_streaming=True), source_schema(False))
    assert [values(task.read(each)) for each in planned] == [[b"a", b"b"], [b"c"]]


def test_the_rows_of_a_single_small_partition_are_passed_with_the_plan(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic(1)
    topic.fill(["a", "b"])
    planner = reader(topic)
    plan(planner)
    assert isinstance(planner, _SimpleStreamReaderWrapper)
    assert values(planner.getCache({}, {})) == [b"a", b"b"]
    assert type(planner) is TopicStreamReader
    assert planner.reportLatestOffset() == {topic.name: {"0": 2}}


def test_large_batches_are_read_by_tasks(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    topic.fill([bytes(PREFETCH_BYTES // 4)] * 5)
    planner = reader(topic)
    (planned,) = plan(planner)
    assert planned.fetched is None
    assert not isinstance(planner, _SimpleStreamReaderWrapper)
    assert len(values(planner.read(planned))) == 5
    single = make_topic(1)
    single.fill([bytes(PREFETCH_BYTES + 1)])
    assert plan(reader(single))[0].fetched is None


def test_limits_apply_to_prefetched_records(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    topic.fill(["a", "b", "c"])
    planner = reader(topic, maxOffsetsPerTrigger="2")
    start = planner.initialOffset()
    planner.partitions(start, planner.latestOffset(start, planner.getDefaultReadLimit()))
    assert values(planner.getCache({}, {})) == [b"a", b"b"]


def test_only_committed_records_are_prefetched_if_requested(
    make_topic: Callable[..., Topic],
) -> None:
    topic = make_topic(1)
    with Producer(topic.broker.bootstrap, transactional_id=f"t-{topic.name}") as producer:
        for value in (b"a", b"aborted", b"c"):
            with suppress(ValueError), producer.transaction():
                producer.send(topic.name, value)
                producer.flush()
                if value == b"aborted":
                    raise ValueError
        with producer.transaction():
            producer.send(topic.name, b"open")
            producer.flush()
            planner = reader(topic, **{"kafka.isolation.level": "read_committed"})
            start = planner.initialOffset()
            end = planner.latestOffset(start, ReadAllAvailable())
            assert end[topic.name] == {"0": 6}  # three records and their markers
            planner.partitions(start, end)
            assert values(planner.getCache({}, {})) == [b"a", b"c"]
