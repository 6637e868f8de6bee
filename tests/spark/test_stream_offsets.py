"""Offset planning of a stream, called as by Spark; a new planner stands for a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.spark.conftest import Topic

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla import Admin, OffsetAndMetadata, TopicPartition
from ottla.spark.options import source_options
from ottla.spark.schema import source_schema
from ottla.spark.stream_source import TopicStreamReader


def planner(topic: Topic, **options: str) -> TopicStreamReader:
    given = {"kafka.bootstrap.servers": topic.broker.bootstrap, "subscribe": topic.name}
    given |= {name.replace("__", "."): text for name, text in options.items()}
    return TopicStreamReader(source_options(given, is_streaming=True), source_schema(False))


def latest(reader: TopicStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """Return the latest offsets after a round trip through JSON, as Spark stores them."""
    offsets: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    return offsets


def planned(
    reader: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[int, int, int]]:
    return [part.value[1:] for part in reader.partitions(start, end)]


def test_a_new_query_begins_where_it_first_looked(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    topic.fill(["a", "b"])
    reader = planner(topic)
    start = reader.initialOffset()
    assert start == {topic.name: {"0": 2}}
    topic.fill(["c"])
    assert reader.initialOffset() == start
    end = latest(reader, start)
    assert planned(reader, start, end) == [(0, 2, 3)]
    assert latest(reader, end) == end
    topic.fill(["d", "e"])
    assert planned(reader, end, latest(reader, end)) == [(0, 3, 5)]


def test_a_first_batch_that_is_run_again_is_the_same(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    topic.fill(["a"])
    reader = planner(topic)
    start = reader.initialOffset()
    topic.fill(["b", "c"])
    end = latest(reader, start)
    topic.fill(["d"])
    restarted = planner(topic)
    assert planned(restarted, restarted.initialOffset(), end) == [(0, 1, 3)]
    assert planned(restarted, end, latest(restarted, end)) == [(0, 3, 4)]


def test_a_batch_after_a_reset_that_is_run_again_is_the_same(
    make_topic: Callable[..., Topic],
) -> None:
    topic, group = make_topic(1), "reset-and-killed"
    topic.fill(["a", "b", "c"])
    options = {"startingOffsets": "earliest", "kafka__group__id": group, "resumeFrom": "group"}
    reader = planner(topic, **options)
    start = reader.initialOffset()
    end = latest(reader, start)
    reader.partitions(start, end)
    reader.commit(end)
    with Admin(topic.broker.bootstrap) as admin:
        tp = TopicPartition(topic.name, 0)
        admin.alter_group_offsets(group, {tp: OffsetAndMetadata(1)})
        reader = planner(topic, **options)
        moved = latest(reader, end)
        assert planned(reader, end, moved) == [(0, 1, 3)]
        again = planner(topic, **options)  # the driver died in that batch
        assert planned(again, end, moved) == [(0, 1, 3)]
        assert latest(again, moved) == moved
        assert admin.list_group_offsets(group)[group][tp].offset == 3


def test_a_partition_that_is_gone_is_data_loss(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    topic.fill(["a"])
    end = {topic.name: {"0": 1}}
    with pytest.raises(Exception, match="partition .*-1 no longer exists"):  # noqa: RUF043
        planner(topic).partitions({topic.name: {"0": 0, "1": 5}}, end)
    loose = planner(topic, failOnDataLoss="false")
    assert planned(loose, {topic.name: {"0": 0, "1": 5}}, end) == [(0, 0, 1)]
