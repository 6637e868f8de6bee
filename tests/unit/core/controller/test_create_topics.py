from __future__ import annotations

from typing import Any

import pytest
from tests.unit.core.controller.cluster import Cluster, broker, brokers

from ottla.base.config.broker import BrokerConfig
from ottla.base.errors import ErrorCode
from ottla.core.controller.create_topics import (
    Inputs,
    NewTopic,
    TopicDecision,
    decide_create_topics,
)


def inputs(**properties: str) -> Inputs:
    ids = iter(range(1, 1000))
    static = {name.replace("_", "."): value for name, value in properties.items()}
    return Inputs(BrokerConfig(static), lambda: next(ids).to_bytes(16, "big"), lambda bound: 0)


def decide(cluster: Cluster, *topics: NewTopic, **properties: str) -> list[TopicDecision]:
    return decide_create_topics(cluster, topics, inputs(**properties))


def error_of(cluster: Cluster, topic: NewTopic) -> tuple[ErrorCode, str]:
    (decision,) = decide(cluster, topic)
    assert decision.topic is None
    assert decision.error is not None
    return decision.error.code, decision.error.message


def test_a_topic_is_created_with_its_partitions_led_by_their_first_replicas() -> None:
    (decision,) = decide(Cluster(*brokers(3)), NewTopic("orders", 2, 2))
    assert decision.error is None
    assert decision.topic is not None
    assert [(p.leader, p.isr, p.replicas, p.leader_epoch) for p in decision.topic.partitions] == [
        (1, (1, 2), (1, 2), 0),
        (2, (2, 3), (2, 3), 0),
    ]
    assert decision.topic.topic_id == (1).to_bytes(16, "big")


def test_minus_one_takes_the_brokers_defaults() -> None:
    (decision,) = decide(
        Cluster(*brokers(3)),
        NewTopic("orders"),
        num_partitions="4",
        default_replication_factor="3",
    )
    assert decision.topic is not None
    assert len(decision.topic.partitions) == 4
    assert decision.topic.replication_factor == 3


def test_configs_are_kept_as_given() -> None:
    (decision,) = decide(Cluster(broker(1)), NewTopic("t", configs=[("retention.ms", "5")]))
    assert decision.topic is not None
    assert decision.topic.configs == {"retention.ms": "5"}


def test_an_assignment_is_used_as_given() -> None:
    cluster = Cluster(broker(1), broker(2, fenced=True), broker(3))
    (decision,) = decide(cluster, NewTopic("t", assignments=[(1, [3, 1]), (0, [2, 1])]))
    assert decision.topic is not None
    first, second = decision.topic.partitions
    assert (first.replicas, first.leader, first.isr) == ((2, 1), 1, (1,))
    assert (second.replicas, second.leader, second.isr) == ((3, 1), 3, (3, 1))


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("with_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic("with.dot"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 10_001), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic("t", configs=[("nonsense", "1")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("retention.ms", "soon")]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (0, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_every_refusal_has_kafkas_code(topic: NewTopic, code: ErrorCode) -> None:
    cluster = Cluster(broker(1), broker(2, fenced=True))
    cluster.add("with.dot")
    assert error_of(cluster, topic)[0] == code


def test_a_collision_names_the_other_topic() -> None:
    cluster = Cluster(broker(1))
    cluster.add("with.dot")
    assert "'with.dot'" in error_of(cluster, NewTopic("with_dot"))[1]


def test_a_name_asked_for_twice_is_refused_once_and_others_are_created() -> None:
    twice, other = decide(Cluster(broker(1)), NewTopic("a"), NewTopic("b"), NewTopic("a"))
    assert twice.error is not None
    assert (twice.name, twice.error.code) == ("a", ErrorCode.INVALID_REQUEST)
    assert other.topic is not None


def test_two_new_names_that_collide_with_each_other_are_not_both_created() -> None:
    first, second = decide(Cluster(broker(1)), NewTopic("a.b"), NewTopic("a_b"))
    assert first.topic is not None
    assert second.error is not None
    assert second.error.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_one_request_may_ask_for_ten_thousand_partitions_in_sum() -> None:
    def codes(count: int) -> list[Any]:
        decisions = decide(Cluster(broker(1)), NewTopic("a", 5_000), NewTopic("b", count))
        return [decision.error and decision.error.code for decision in decisions]

    assert codes(5_000) == [None, None]
    assert codes(5_001) == [ErrorCode.POLICY_VIOLATION] * 2


def test_a_name_that_exists_and_is_asked_for_with_wrong_counts_exists() -> None:
    cluster = Cluster(broker(1))
    cluster.add("t")
    assert error_of(cluster, NewTopic("t", 0, 0))[0] == ErrorCode.TOPIC_ALREADY_EXISTS
