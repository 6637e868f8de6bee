"""Tests of the heartbeats of a consumer-protocol member (KIP-848) and its use of the responses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.base.types import TopicPartition
from ottla.client.consumer.consumer_protocol_state import (
    ConsumerProtocolState,
    SubscribedTopics,
    resolve,
)

A, B = b"a" * 16, b"b" * 16
TOPICS = SubscribedTopics(("t",), None)


def state(**options: Any) -> ConsumerProtocolState:
    return ConsumerProtocolState("g", "m", rebalance_timeout_ms=1000, **options)


def answer(epoch: int, *partitions: int, assignment: bool = True) -> Any:
    assigned = [SimpleNamespace(topic_id=A, partitions=list(partitions))] if partitions else []
    return SimpleNamespace(
        member_id="m",
        member_epoch=epoch,
        heartbeat_interval_ms=500,
        assignment=SimpleNamespace(topic_partitions=assigned) if assignment else None,
    )


def test_joining_sends_all_fields_and_owns_nothing() -> None:
    body = state(rack_id="r", assignor="uniform", instance_id="i").request(TOPICS)
    assert body == {
        "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": "i", "rack_id": "r",
        "rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": None, "server_assignor": "uniform", "topic_partitions": [],
    }  # fmt: skip


def test_a_member_sends_only_what_has_changed() -> None:
    member = state()
    member.request(TOPICS)
    member.on_response(answer(1, 0, 1))
    quiet = member.request(TOPICS)
    assert quiet["member_epoch"] == 1
    for field in ("subscribed_topic_names", "subscribed_topic_regex", "topic_partitions"):
        assert quiet[field] is None
    assert quiet["rebalance_timeout_ms"] == -1

    assert not member.is_reconciled
    assert member.target == {(A, 0), (A, 1)}
    member.owned = member.target
    assert member.is_reconciled
    assigned = member.request(TOPICS)
    assert assigned["topic_partitions"] == [{"topic_id": A, "partitions": [0, 1]}]
    assert assigned["subscribed_topic_names"] is None
    changed = member.request(SubscribedTopics(("t", "u"), None))
    assert changed["subscribed_topic_names"] == ["t", "u"]
    assert changed["topic_partitions"] is None
    by_pattern = member.request(SubscribedTopics((), "t.*"))
    assert (by_pattern["subscribed_topic_names"], by_pattern["subscribed_topic_regex"]) == (
        [], "t.*",
    )  # fmt: skip
    back = member.request(TOPICS)
    assert back["subscribed_topic_regex"] == "", "the pattern is taken back"


def test_a_change_is_sent_again_until_it_is_acknowledged() -> None:
    member = state()
    member.request(TOPICS)
    member.on_response(answer(3, 0))
    member.owned = frozenset({(A, 0)})
    member.request(TOPICS)
    member.on_failure()
    again = member.request(TOPICS)
    assert again["member_epoch"] == 3
    assert again["subscribed_topic_names"] == ["t"]
    assert again["topic_partitions"] == [{"topic_id": A, "partitions": [0]}]
    assert again["rebalance_timeout_ms"] == 1000


def test_an_answer_without_an_assignment_leaves_the_target_alone() -> None:
    member = state()
    member.on_response(answer(1, 0))
    member.on_response(answer(2, assignment=False))
    assert (member.epoch, member.target) == (2, {(A, 0)})
    member.on_response(answer(3))
    assert member.target == frozenset()


def test_starting_over_forgets_all_but_the_name() -> None:
    member = state()
    member.on_response(answer(5, 0))
    member.owned = frozenset({(A, 0)})
    member.start_over()
    assert (member.epoch, member.target, member.owned) == (0, None, frozenset())
    body = member.request(TOPICS)
    assert body["member_id"] == "m"
    assert body["topic_partitions"] == []


def test_static_members_leave_for_a_while() -> None:
    assert state().leave_request()["member_epoch"] == -1
    assert state(instance_id="i").leave_request()["member_epoch"] == -2


def test_ids_are_resolved_as_far_as_they_are_known() -> None:
    found, unknown = resolve([(A, 0), (B, 1)], {A: "t"})
    assert found == {TopicPartition("t", 0): (A, 0)}
    assert unknown == {B}
