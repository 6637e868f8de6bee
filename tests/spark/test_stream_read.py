"""Streaming queries over topics: triggers, limits, new partitions, consumer groups, data loss."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.spark.conftest import Reads, Topic

from ottla import Admin, OffsetAndMetadata, TopicPartition

pytestmark = pytest.mark.timeout(600)
WAIT_S = 120.0


class Collected:
    """The values that a query has returned, by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}

    def take(self, frame: Any, batch: int) -> None:
        self.batches[batch] = sorted(row.value.decode() for row in frame.collect())

    @property
    def values(self) -> list[str]:
        return sorted(value for batch in self.batches.values() for value in batch)


@pytest.fixture
def run(reads: Reads, checkpoint: str) -> Callable[..., Collected]:
    """Return a function that runs a query over all available records and waits until it ends."""

    def start(**options: str) -> Collected:
        collected = Collected()
        frame = reads.stream({name.replace("__", "."): text for name, text in options.items()})
        query = (
            frame.writeStream.foreachBatch(collected.take)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(WAIT_S)
        finally:
            query.stop()
        return collected

    return start


@pytest.fixture
def running(reads: Reads, checkpoint: str) -> Iterator[Callable[..., tuple[Any, Collected]]]:
    """Yield a function that starts a query that keeps running."""
    started: list[Any] = []

    def start(**options: str) -> tuple[Any, Collected]:
        collected = Collected()
        frame = reads.stream({name.replace("__", "."): text for name, text in options.items()})
        query = (
            frame.writeStream.foreachBatch(collected.take)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        started.append(query)
        return query, collected

    yield start
    for query in started:
        query.stop()


def until(holds: Callable[[], bool], query: Any = None) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        assert query is None or query.isActive, query.exception()
        time.sleep(0.05)


def test_available_now_reads_what_is_there_and_resumes_from_the_checkpoint(
    run: Callable[..., Collected], make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(2)
    topic.fill(["a", "b"])
    topic.fill(["c"], partition=1)
    assert run(subscribe=topic.name, startingOffsets="earliest").values == ["a", "b", "c"]
    topic.fill(["d"])
    assert run(subscribe=topic.name, startingOffsets="earliest").values == ["d"]


def test_a_trigger_takes_no_more_than_its_limit_in_proportion(
    run: Callable[..., Collected], make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(2)
    topic.fill([f"a{n}" for n in range(30)])
    topic.fill([f"b{n}" for n in range(10)], partition=1)
    start = json.dumps({topic.name: {"0": -2, "1": -2}})
    collected = run(
        subscribe=topic.name, startingOffsets=start, maxOffsetsPerTrigger="20", minPartitions="3"
    )
    assert len(collected.batches[0]) == 20
    assert sum(value.startswith("a") for value in collected.batches[0]) == 15
    assert len(collected.values) == 40


def test_new_partitions_and_new_topics_are_picked_up(
    running: Callable[..., tuple[Any, Collected]], make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1, "grows-1")
    topic.fill(["a"])
    query, collected = running(subscribePattern=r"grows-\d", startingOffsets="earliest")
    until(lambda: collected.values == ["a"], query)
    with Admin(topic.broker.bootstrap) as admin:
        admin.create_partitions({topic.name: 2})
    topic.fill(["b"], partition=1)
    other = make_topic(1, "grows-2")
    other.fill(["c"])
    until(lambda: collected.values == ["a", "b", "c"], query)


def test_a_query_is_a_consumer_group_and_can_be_reset(
    run: Callable[..., Collected], make_topic: Callable[..., Topic]
) -> None:
    topic, tp = make_topic(1), TopicPartition
    topic.fill([f"{n}" for n in range(5)])
    group = f"group-of-{topic.name}"
    options = {
        "subscribe": topic.name,
        "startingOffsets": "earliest",
        "kafka.group.id": group,
        "resumeFrom": "group",
    }
    assert run(**options).values == ["0", "1", "2", "3", "4"]
    with Admin(topic.broker.bootstrap) as admin:
        committed = admin.list_group_offsets(group)[group][tp(topic.name, 0)]
        assert (committed.offset, committed.metadata) == (5, "ottla-spark")
        admin.alter_group_offsets(group, {tp(topic.name, 0): OffsetAndMetadata(3)})
        # `resumeFrom=checkpoint` ignores the offsets of the group.
        assert run(**{**options, "resumeFrom": "checkpoint"}).values == []
        admin.alter_group_offsets(group, {tp(topic.name, 0): OffsetAndMetadata(3)})
        topic.fill(["5"])
        assert run(**options).values == ["3", "4", "5"]
        assert run(**options).values == []
        assert admin.list_group_offsets(group)[group][tp(topic.name, 0)].offset == 6


def test_a_running_query_shows_its_lag(
    running: Callable[..., tuple[Any, Collected]], make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill(["a"])
    group = f"group-of-{topic.name}"
    query, collected = running(
        subscribe=topic.name, startingOffsets="earliest", kafka__group__id=group
    )
    with Admin(topic.broker.bootstrap) as admin:

        def committed() -> int:
            found = admin.list_group_offsets(group)[group]
            return max((each.offset for each in found.values()), default=-1)

        until(lambda: committed() == 1, query)
        topic.fill(["b", "c"])
        until(lambda: committed() == 3, query)
    assert collected.values == ["a", "b", "c"]
    (source,) = query.lastProgress.sources
    assert json.loads(source.latestOffset) == {topic.name: {"0": 3}}


def test_a_stream_waits_for_enough_records(
    running: Callable[..., tuple[Any, Collected]], make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill(["a"])
    query, collected = running(
        subscribe=topic.name, startingOffsets="earliest", minOffsetsPerTrigger="3",
        maxTriggerDelay="10m",
    )  # fmt: skip
    # The first batch does not wait for more records.
    until(lambda: collected.values == ["a"], query)
    topic.fill(["b", "c"])
    topic.fill(["d"])
    until(lambda: len(collected.values) == 4, query)
    assert collected.batches[1] == ["b", "c", "d"]


def test_what_retention_took_from_a_stopped_query_is_data_loss(
    run: Callable[..., Collected], make_topic: Callable[..., Topic]
) -> None:
    topic = make_topic(1)
    topic.fill(["a", "b"])
    options = {"subscribe": topic.name, "startingOffsets": "earliest"}
    run(**options)
    topic.fill(["c", "d", "e"])
    with Admin(topic.broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic.name, 0): 4})
    with pytest.raises(Exception, match="Cannot read offsets 2 to 5 of .*: "):  # noqa: RUF043
        run(**options)
    assert run(**options, failOnDataLoss="false").values == ["e"]


def test_only_committed_records_are_read_if_asked(
    run: Callable[..., Collected], make_topic: Callable[..., Topic]
) -> None:
    from confluent_kafka import Producer

    topic = make_topic(1)
    topic.fill(["a"])
    producer = Producer(
        {"bootstrap.servers": topic.broker.bootstrap, "transactional.id": topic.name}
    )
    producer.init_transactions()
    for value, ends in (("void", producer.abort_transaction), ("b", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic.name, value, partition=0)
        producer.flush()
        ends()
    collected = run(
        subscribe=topic.name, startingOffsets="earliest", kafka__isolation__level="read_committed"
    )
    assert collected.values == ["a", "b"]
