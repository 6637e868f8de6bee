"""Writing rows to topics: columns, partitions, delivery and invalid input."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Reads, Topic

pytestmark = pytest.mark.timeout(600)
WAIT_S = 120.0


def written(topic: Topic) -> list[Any]:
    from ottla import Consumer, TopicPartition

    tps = [TopicPartition(topic.name, each) for each in range(topic.partition_count)]
    found: list[Any] = []
    with Consumer(topic.broker.bootstrap) as consumer:
        consumer.assign(tps)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(*tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            found += consumer.poll(timeout_s=1)
    return found


def write(frame: Any, to: Topic, /, **options: str) -> None:
    given = {name.replace("__", "."): text for name, text in options.items()}
    frame.write.format("ottla").mode("append").options(
        **{"kafka.bootstrap.servers": to.broker.bootstrap, **given}
    ).save()


def test_columns_become_the_parts_of_a_record(spark: Any, make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(3)
    frame = spark.sql(f"""
        select * from values
          ('{topic.name}', cast('k' as binary), 'v', 2, timestamp'2024-01-02 03:04:05.678',
           array(named_struct('key', 'h', 'value', cast('1' as binary)))),
          ('{topic.name}', null, null, 1, null, null)
        as rows(topic, key, value, partition, timestamp, headers)
    """)
    write(frame, topic)
    first, second = sorted(written(topic), key=lambda record: -record.partition)
    assert (first.key, first.value, first.partition) == (b"k", b"v", 2)
    assert first.headers == (("h", b"1"),)
    moment = datetime(2024, 1, 2, 3, 4, 5, 678_000, UTC)
    assert first.timestamp == int(moment.timestamp() * 1000)
    assert (second.key, second.value, second.partition, second.headers) == (None, None, 1, ())
    assert abs(second.timestamp - datetime.now(UTC).timestamp() * 1000) < 600_000


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_keys_choose_partitions_as_java_does(
    spark: Any, make_topic: Callable[..., Topic], delivery: str
) -> None:
    from ottla.wire.murmur2 import partition_for_key

    topic = make_topic(5)
    frame = spark.range(2_000).selectExpr("cast(id as string) key", "cast(id as string) value")
    write(frame, topic, topic=topic.name, delivery=delivery, kafka__compression__type="lz4")
    records = written(topic)
    assert sorted(int(record.value) for record in records) == list(range(2_000))
    for record in records:
        assert record.partition == partition_for_key(record.key, 5)


def test_a_stream_from_topic_to_topic_is_written_exactly_once(
    reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    source, target = make_topic(3), make_topic(2)
    for partition in range(3):
        source.fill([f"{partition}-{n}" for n in range(200)], partition=partition)

    def run() -> None:
        query = (
            reads.stream(
                {
                    "subscribe": source.name,
                    "startingOffsets": "earliest",
                    "maxOffsetsPerTrigger": "250",
                }
            )
            .selectExpr("key", "value")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", target.broker.bootstrap)
            .option("topic", target.name)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)

    run()
    expected = sorted(f"{partition}-{n}" for partition in range(3) for n in range(200))
    assert target.values() == expected
    source.fill(["more"])
    run()
    assert target.values() == sorted([*expected, "more"])


def test_at_least_once_is_there_for_who_asks(
    reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    source, target = make_topic(1), make_topic(1)
    source.fill(["a", "b"])
    query = (
        reads.stream({"subscribe": source.name, "startingOffsets": "earliest"})
        .selectExpr("value")
        .writeStream.format("ottla")
        .options(**{
            "kafka.bootstrap.servers": target.broker.bootstrap, "topic": target.name,
            "delivery": "at-least-once", "checkpointLocation": checkpoint,
        })
        .trigger(availableNow=True)
        .start()
    )  # fmt: skip
    assert query.awaitTermination(WAIT_S)
    assert target.values() == ["a", "b"]


def test_wrong_input_is_one_sentence(spark: Any, make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(1)
    rows = spark.sql("select 'v' value, 7 partition")
    with pytest.raises(Exception, match="A row has partition 7, but topic"):
        write(rows, topic, topic=topic.name)
    with pytest.raises(Exception, match="The rows have no topic"):
        write(rows, topic)
    with pytest.raises(Exception, match="The rows have no column 'value'"):
        write(spark.sql("select 1 price"), topic, topic=topic.name)
    with pytest.raises(Exception, match="Column 'value' must be string or binary, not int"):
        write(spark.sql("select 1 value"), topic, topic=topic.name)
    with pytest.raises(Exception, match="Did you mean topic"):
        write(rows, topic, topik=topic.name)
    with pytest.raises(Exception, match=r"no topic\. Fill the column"):
        write(spark.sql("select 'v' value, cast(null as string) topic"), topic)
    assert topic.values() == []


def test_the_complete_mode_is_refused_and_the_error_names_the_remedy(
    reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    source, target = make_topic(1), make_topic(1)
    source.fill(["a", "b"])
    counts = reads.stream({"subscribe": source.name, "startingOffsets": "earliest"})
    counts = counts.groupBy("value").count().selectExpr("string(count) value")
    query = counts.writeStream.format("ottla").outputMode("complete").trigger(availableNow=True)
    options = {
        "kafka.bootstrap.servers": target.broker.bootstrap, "topic": target.name,
        "checkpointLocation": checkpoint,
    }  # fmt: skip
    with pytest.raises(Exception, match=r"Use outputMode\('update'\) to write the rows"):
        query.options(**options).start().awaitTermination(WAIT_S)
    assert target.values() == []


def test_the_update_mode_writes_each_change_exactly_once(
    reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    source, target = make_topic(1), make_topic(1)
    counts = reads.stream({"subscribe": source.name, "startingOffsets": "earliest"})
    counts = counts.groupBy("value").count().selectExpr("value key", "string(count) value")
    options = {
        "kafka.bootstrap.servers": target.broker.bootstrap, "topic": target.name,
        "checkpointLocation": checkpoint,
    }  # fmt: skip

    def run() -> None:
        query = counts.writeStream.format("ottla").outputMode("update").options(**options)
        assert query.trigger(availableNow=True).start().awaitTermination(WAIT_S)

    source.fill(["a", "b", "a"])
    run()
    assert sorted(target.records()) == [(b"a", b"2"), (b"b", b"1")]
    last = max(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda each: int(each.name))
    last.unlink()  # as if Spark had been killed after the sink's commit and before its own
    source.fill(["a"])
    run()
    assert sorted(target.records()) == [(b"a", b"2"), (b"a", b"3"), (b"b", b"1")]


def test_progress_is_tracked_asynchronously_on_request(
    reads: Reads, make_topic: Callable[..., Topic], checkpoint: str
) -> None:
    source, target = make_topic(1), make_topic(1)
    options = {
        "kafka.bootstrap.servers": target.broker.bootstrap,
        "topic": target.name,
        "checkpointLocation": checkpoint,
        "delivery": "at-least-once",
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": "0",
        "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
    }
    for value in ("a", "b"):
        source.fill([value])
        frame = reads.stream({"subscribe": source.name, "startingOffsets": "earliest"})
        query = frame.select("value").writeStream.format("ottla").options(**options).start()
        try:
            query.processAllAvailable()
            kind = query._jsq.streamingQuery().getClass().getSimpleName()  # type: ignore[attr-defined]
        finally:
            query.stop()
        assert kind == "AsyncProgressTrackingMicroBatchExecution"
    assert target.values() == ["a", "b"]
