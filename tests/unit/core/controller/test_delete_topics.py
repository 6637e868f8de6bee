from __future__ import annotations

from tests.unit.core.controller.cluster import Cluster, broker

from ottla.base.errors import ErrorCode
from ottla.core.controller.delete_topics import (
    DeleteDecision,
    TopicReference,
    decide_delete_topics,
)

UNKNOWN_ID = b"\x09" * 16


def decide(cluster: Cluster, *references: TopicReference) -> list[DeleteDecision]:
    return decide_delete_topics(cluster, references, enabled=True)


def codes(decisions: list[DeleteDecision]) -> list[ErrorCode | None]:
    return [decision.error and decision.error.code for decision in decisions]


def test_topics_are_found_by_name_and_by_id() -> None:
    cluster = Cluster(broker(1))
    first, second = cluster.add("first"), cluster.add("second")
    decisions = decide(cluster, TopicReference("first"), TopicReference(None, second.topic_id))
    assert [decision.topic for decision in decisions] == [first, second]
    assert [(d.name, d.topic_id) for d in decisions] == [
        ("first", first.topic_id),
        ("second", second.topic_id),
    ]


def test_unknown_names_and_ids_have_codes_of_their_own() -> None:
    decisions = decide(Cluster(), TopicReference("no"), TopicReference(None, UNKNOWN_ID))
    assert codes(decisions) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]
    assert (decisions[1].name, decisions[1].topic_id) == (None, UNKNOWN_ID)


def test_a_reference_names_one_topic_in_one_way() -> None:
    decisions = decide(Cluster(), TopicReference(None), TopicReference("a", UNKNOWN_ID))
    assert codes(decisions) == [ErrorCode.INVALID_REQUEST] * 2


def test_one_topic_given_twice_is_refused() -> None:
    cluster = Cluster(broker(1))
    topic = cluster.add("a")
    twice = decide(cluster, TopicReference("a"), TopicReference("a"))
    assert codes(twice) == [ErrorCode.INVALID_REQUEST]
    both_ways = decide(cluster, TopicReference("a"), TopicReference(None, topic.topic_id))
    assert codes(both_ways) == [None, ErrorCode.INVALID_REQUEST]


def test_deletion_can_be_disabled() -> None:
    cluster = Cluster(broker(1))
    cluster.add("a")
    decisions = decide_delete_topics(cluster, [TopicReference("a")], enabled=False)
    assert codes(decisions) == [ErrorCode.TOPIC_DELETION_DISABLED]
