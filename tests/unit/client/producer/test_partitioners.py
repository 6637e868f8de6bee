from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import InvalidConfig
from ottla.client.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from ottla.client.producer.accumulator import Accumulator
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.partitioners import (
    PriorityPartitioner,
    RoundRobinPartitioner,
    next_sticky,
    partition_of,
    partitioner,
)
from ottla.client.producer.record_appender import RecordAppender
from ottla.wire.murmur2 import partition_for_key

BATCH = 1000


def topic(leaders: list[int]) -> TopicMetadata:
    partitions = tuple(
        PartitionMetadata(number, leader, 0, (0,), (0,), (), 0)
        for number, leader in enumerate(leaders)
    )
    available = tuple(number for number, leader in enumerate(leaders) if leader >= 0)
    return TopicMetadata("t", bytes(16), False, partitions, available)


def test_the_next_turn_is_never_that_of_a_partition_without_leader() -> None:
    chance = random.Random(1)
    chosen = {next_sticky(topic([0, -1, 0, -1]), 0, None, chance) for _ in range(50)}
    assert chosen == {2}
    assert {next_sticky(topic([-1, -1]), 0, None, chance) for _ in range(50)} == {1}
    assert next_sticky(topic([0]), 0, None, chance) == 0


def test_the_next_turn_is_rather_that_of_a_partition_where_fewer_wait() -> None:
    chance = random.Random(1)
    chosen = Counter(next_sticky(topic([0] * 3), 2, [9, 0, 0], chance) for _ in range(1000))
    assert 50 < chosen[0] < 150
    assert chosen[0] + chosen[1] == 1000


def test_round_robin_passes_over_partitions_without_leader() -> None:
    partitioner = RoundRobinPartitioner()
    chosen = [partitioner.partition(topic([0, -1, 0]), None, None, None, None) for _ in range(4)]
    assert chosen == [0, 2, 0, 2]


def test_priorities_need_as_many_partitions() -> None:
    with pytest.raises(InvalidConfig, match="3 priorities"):
        PriorityPartitioner(levels=3).partition(topic([0, 0]), None, None, None, 0)
    with pytest.raises(InvalidConfig, match="either"):
        PriorityPartitioner()


@pytest.mark.parametrize("given", ["random", 5])
def test_what_is_no_partitioner_is_refused(given: object) -> None:
    with pytest.raises(InvalidConfig):
        partitioner(given)  # type: ignore[arg-type]


def appender(accumulator: Accumulator) -> RecordAppender:
    config = ProducerConfig.of("localhost:9092", None, {"batch_size": BATCH})
    cluster = Cluster(config)
    nodes = {0: Node(0, "localhost", 9092)}
    cluster.metadata = ClusterMetadata(nodes=nodes, topics={"t": topic([0] * 4)})
    made = RecordAppender(
        config, cluster, accumulator, lambda: None,
        key_serializer=None, value_serializer=None, partitioner=None,
    )  # fmt: skip
    made.reject_with(None)
    return made


def send(records: RecordAppender) -> int:
    future = records.try_append("t", bytes(100), None, None, None, None, None)
    assert isinstance(future, RecordFuture)
    return future._batch.partition


def test_records_without_key_fill_a_batch_before_the_turn_passes() -> None:
    accumulator = Accumulator(batch_size=BATCH, linger_s=1, buffer_memory=1_000_000)
    records = appender(accumulator)
    partitions = [send(records) for _ in range(40)]
    runs = [partitions[start : start + 8] for start in range(0, 40, 8)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(earlier[0] != later[0] for earlier, later in itertools.pairwise(runs))


def test_a_partition_keeps_its_turn_over_small_batches_until_a_batchs_worth_went_there() -> None:
    accumulator = Accumulator(batch_size=BATCH, linger_s=0, buffer_memory=1_000_000)
    records = appender(accumulator)
    partitions = []
    for _ in range(12):  # each batch has 173 bytes, including its header
        partitions.append(send(records))
        (queue,) = accumulator.queues
        accumulator.pop_ready(queue).seal(0, None)
    assert len(set(partitions[:6])) == 1
    assert partitions[6] != partitions[5]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_a_key_falls_where_java_puts_it_whether_its_hash_is_kept_or_not(size: int) -> None:
    key = bytes(size)
    for _ in range(2):
        assert partition_of(key, 12) == partition_for_key(key, 12)
