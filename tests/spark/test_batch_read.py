"""Batch queries over topics: schema, bounds, splits, conditions, data loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.spark.conftest import Reads, Topic

from ottla import Admin, TopicPartition

pytestmark = pytest.mark.timeout(600)


def values(frame: Any) -> list[str]:
    return sorted(row.value.decode() for row in frame.select("value").collect())


def test_rows_have_the_columns_of_sparks_own_source(
    reads: Reads, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(2)
    topic.fill(["a"], key=b"k", timestamp=1_700_000_000_123, headers=[("h", b"1"), ("n", None)])
    topic.fill([None, "b"], partition=1, timestamp=1_700_000_000_124)
    frame = reads.batch({"subscribe": topic.name, "includeHeaders": "true"})
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    rows = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    first = rows[0]
    assert (first.key, first.value, first.topic) == (b"k", b"a", topic.name)
    assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
    assert first.timestamp.astimezone(UTC) == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert [(each.key, each.value) for each in first.headers] == [("h", b"1"), ("n", None)]
    assert [(row.partition, row.offset, row.value) for row in rows[1:]] == [
        (1, 0, None),
        (1, 1, b"b"),
    ]
    assert rows[1].headers is None
    assert len(reads.batch({"subscribe": topic.name}).columns) == 7


def test_offsets_bound_what_is_read(reads: Reads, make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(2)
    topic.fill([f"a{n}" for n in range(10)])
    topic.fill([f"b{n}" for n in range(10)], partition=1)
    options = {
        "subscribe": topic.name,
        "startingOffsets": json.dumps({topic.name: {"0": 7, "1": -2}}),
        "endingOffsets": json.dumps({topic.name: {"0": -1, "1": 2}}),
    }
    assert values(reads.batch(options)) == ["a7", "a8", "a9", "b0", "b1"]


def test_times_bound_what_is_read(reads: Reads, make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    for number in range(5):
        topic.fill([f"v{number}"], timestamp=1_000 * (number + 1))
    name = topic.name
    read = {"subscribe": name, "startingTimestamp": "2000", "endingTimestamp": "4000"}
    assert values(reads.batch(read)) == ["v1", "v2"]
    read = {
        "subscribe": name,
        "startingOffsetsByTimestamp": json.dumps({name: {"0": 4500}}),
        "endingOffsetsByTimestamp": json.dumps({name: {"0": 9000}}),
    }
    assert values(reads.batch(read)) == ["v4"]
    late = {"subscribe": name, "startingTimestamp": "9000"}
    with pytest.raises(Exception, match="has no record at or after 9000"):
        reads.batch(late).collect()
    assert values(reads.batch({**late, "startingOffsetsByTimestampStrategy": "latest"})) == []


def test_a_pattern_and_an_assignment_choose_partitions(
    reads: Reads, make_topic: Callable[..., Topic]
) -> None:
    first, second = make_topic(2, "choice-1"), make_topic(2, "choice-2")
    first.fill(["p0"])
    first.fill(["p1"], partition=1)
    second.fill(["q0"])
    assert values(reads.batch({"subscribePattern": r"choice-\d"})) == ["p0", "p1", "q0"]
    assert values(reads.batch({"assign": json.dumps({first.name: [1]})})) == ["p1"]
    assert values(reads.batch({"subscribe": "choice-1,choice-2"})) == ["p0", "p1", "q0"]


def test_a_large_partition_is_split_over_tasks(
    reads: Reads, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill([f"{n:03}" for n in range(100)])
    parts = reads.batch({"subscribe": topic.name, "minPartitions": "4"})
    assert parts.rdd.getNumPartitions() == 4
    assert values(parts) == [f"{n:03}" for n in range(100)]
    parts = reads.batch({"subscribe": topic.name, "maxRecordsPerPartition": "30"})
    assert parts.rdd.getNumPartitions() == 4
    assert values(parts) == [f"{n:03}" for n in range(100)]


def test_conditions_on_partition_offset_and_time_are_pushed_down(
    reads: Reads, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        for number in range(10):
            time_ms = 1_000_000 * (number + 1)
            topic.fill([f"{partition}{number}"], partition=partition, timestamp=time_ms)
    frame = reads.batch({"subscribe": topic.name})
    narrow = frame.where("partition = 1 and offset >= 4 and offset < 7")
    assert values(narrow) == ["14", "15", "16"]
    assert narrow.rdd.getNumPartitions() == 1
    assert "offset" not in _filters(narrow)
    assert values(frame.where("partition in (0, 2) and offset = 3")) == ["03", "23"]
    late = frame.where("timestamp >= timestamp'1970-01-01 02:30:00' and partition = 0")
    assert values(late) == ["08", "09"]
    assert values(frame.where(f"topic = '{topic.name}' and offset > 8")) == ["09", "19", "29"]
    assert values(frame.where("topic = 'other'")) == []


def _filters(frame: Any) -> str:
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return " ".join(line for line in plan.splitlines() if "Filter (" in line)


def test_without_push_down_the_session_filters_itself(
    reads: Reads, spark: Any, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(2)
    topic.fill(["a"])
    topic.fill(["b"], partition=1)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        frame = reads.batch({"subscribe": topic.name}).where("partition = 1")
        assert values(frame) == ["b"]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_only_the_columns_of_a_given_schema_are_read(
    reads: Reads, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill(["a", "b"])
    frame = reads.batch({"subscribe": topic.name}, schema="offset BIGINT, topic STRING")
    assert [tuple(row) for row in frame.collect()] == [(0, topic.name), (1, topic.name)]
    with pytest.raises(Exception, match="Unknown column 'price'"):
        reads.batch({"subscribe": topic.name}, schema="price INT").collect()


def test_records_that_were_deleted_are_data_loss(
    reads: Reads, make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill(["a", "b", "c"])
    with Admin(topic.broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic.name, 0): 2})
    read = {"subscribe": topic.name, "startingOffsets": json.dumps({topic.name: {"0": 0}})}
    with pytest.raises(Exception, match=r"Cannot read offsets 0 to 3 of \S+:"):
        reads.batch(read).collect()
    assert values(reads.batch({**read, "failOnDataLoss": "false"})) == ["c"]


def test_wrong_input_is_one_sentence(reads: Reads, make_topic: Callable[..., Topic]) -> None:
    with pytest.raises(Exception, match="topic 'no-such-topic' does not exist"):
        reads.batch({"subscribe": "no-such-topic"}).collect()
    with pytest.raises(Exception, match="Did you mean startingOffsets"):
        reads.batch({"subscribe": "t", "startingOffset": "earliest"}).collect()
    unreachable = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "500"}
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        reads.batch({"subscribe": "t", **unreachable}).collect()
