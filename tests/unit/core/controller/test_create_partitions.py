from __future__ import annotations

import pytest
from tests.unit.core.controller.cluster import Cluster, broker, brokers

from ottla.base.errors import ErrorCode
from ottla.core.controller.create_partitions import (
    PartitionIncrease,
    PartitionsDecision,
    decide_create_partitions,
)


def decide(cluster: Cluster, *requested: PartitionIncrease) -> list[PartitionsDecision]:
    return decide_create_partitions(cluster, requested)


def test_new_partitions_continue_behind_the_present_ones() -> None:
    cluster = Cluster(*brokers(3))
    topic = cluster.add("t", (2, 3), (3, 1))
    (decision,) = decide(cluster, PartitionIncrease("t", 4))
    assert decision.topic is topic
    assert [state.leader for state in decision.added] == [1, 2]
    assert all(len(state.replicas) == 2 for state in decision.added)


def test_given_assignments_are_used() -> None:
    cluster = Cluster(*brokers(3))
    cluster.add("t", (1, 2))
    (decision,) = decide(cluster, PartitionIncrease("t", 3, [[3, 1], [2, 3]]))
    assert [state.replicas for state in decision.added] == [(3, 1), (2, 3)]


@pytest.mark.parametrize(
    ("requested", "code"),
    [
        (PartitionIncrease("no", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (PartitionIncrease("t", 1), ErrorCode.INVALID_PARTITIONS),
        (PartitionIncrease("t", 0), ErrorCode.INVALID_PARTITIONS),
        (PartitionIncrease("t", -1), ErrorCode.INVALID_PARTITIONS),
        (PartitionIncrease("t", 10_002), ErrorCode.POLICY_VIOLATION),
        (PartitionIncrease("t", 2, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionIncrease("t", 2, [[1], [1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionIncrease("t", 2, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionIncrease("t", 2, [[9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionIncrease("wide", 2), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_every_refusal_has_kafkas_code(requested: PartitionIncrease, code: ErrorCode) -> None:
    cluster = Cluster(broker(1), broker(2, fenced=True))
    cluster.add("t", (1,))
    cluster.add("wide", (1, 2))
    (decision,) = decide(cluster, requested)
    assert decision.error is not None
    assert decision.error.code == code


def test_a_topic_asked_for_twice_is_refused_once() -> None:
    cluster = Cluster(broker(1))
    cluster.add("t", (1,))
    (decision,) = decide(cluster, PartitionIncrease("t", 2), PartitionIncrease("t", 3))
    assert decision.error is not None
    assert decision.error.code == ErrorCode.INVALID_REQUEST
