"""Tests of updating the client's metadata from Metadata responses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.base.errors import ErrorCode
from ottla.client.metadata import ClusterMetadata, Node

ID, OTHER_ID = b"1" * 16, b"2" * 16


def partition(index: int, leader: int = 1, epoch: int = 0) -> Any:
    return SimpleNamespace(
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        offline_replicas=[2],
        error_code=0,
    )


def topic(name: str | None, *partitions: Any, topic_id: bytes = ID, error: int = 0) -> Any:
    return SimpleNamespace(
        name=name, topic_id=topic_id, is_internal=False, partitions=partitions, error_code=error
    )


def answer(*topics: Any, brokers: tuple[int, ...] = (1, 2), cluster_id: str | None = "c") -> Any:
    return SimpleNamespace(
        topics=topics,
        brokers=[SimpleNamespace(node_id=n, host=f"b{n}", port=9, rack=None) for n in brokers],
        cluster_id=cluster_id,
        controller_id=2,
    )


def after(*answers: Any, complete: bool = False) -> ClusterMetadata:
    metadata = ClusterMetadata()
    for each in answers:
        metadata = metadata.updated(each, is_complete=complete)
    return metadata


def test_a_response_has_brokers_topics_and_leaders() -> None:
    metadata = after(answer(topic("t", partition(1, leader=2), partition(0))))
    assert metadata.cluster_id == "c"
    assert metadata.controller_id == 2
    assert metadata.nodes[1] == Node(1, "b1", 9)
    assert str(metadata.nodes[1]) == "b1:9"
    assert [metadata.leader("t", number) for number in (-1, 0, 1, 2)] == [-1, 1, 2, -1]
    assert metadata.leader("u", 0) == -1
    assert metadata.names_by_id == {ID: "t"}
    known = metadata.topics["t"]
    assert known.partition_count == 2
    assert [each.partition for each in known.partitions] == [0, 1]
    assert known.available == (0, 1)


def test_an_answer_about_some_topics_leaves_the_others_alone() -> None:
    first = answer(topic("t", partition(0)), topic("u", partition(0), topic_id=OTHER_ID))
    second = answer(topic("u", partition(0), partition(1), topic_id=OTHER_ID))
    assert sorted(after(first, second).topics) == ["t", "u"]
    assert after(first, second).topics["u"].partition_count == 2
    assert sorted(after(first, second, complete=True).topics) == ["u"]


def test_a_topic_that_is_gone_is_forgotten_and_its_error_kept() -> None:
    gone = answer(topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    metadata = after(answer(topic("t", partition(0))), gone)
    assert "t" not in metadata.topics
    assert metadata.errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert after(gone, answer(topic("t", partition(0)))).errors == {}


def test_a_topic_without_leaders_is_known_and_not_available() -> None:
    waiting = topic("t", partition(0, leader=-1), error=ErrorCode.LEADER_NOT_AVAILABLE)
    metadata = after(answer(waiting))
    assert metadata.topics["t"].available == ()
    assert metadata.errors == {}


def test_a_broker_that_lags_behind_does_not_unteach_the_newest_leader() -> None:
    new, old = partition(0, leader=2, epoch=5), partition(0, leader=1, epoch=4)
    assert after(answer(topic("t", new)), answer(topic("t", old))).leader("t", 0) == 2
    recreated = answer(topic("t", old, topic_id=OTHER_ID))
    assert after(answer(topic("t", new)), recreated).leader("t", 0) == 1


def test_a_newer_leader_in_an_error_response_counts() -> None:
    metadata = after(answer(topic("t", partition(0, leader=1, epoch=3))))
    assert metadata.with_leader("t", 0, 2, 4).leader("t", 0) == 2
    assert metadata.with_leader("t", 0, 2, 4).leader_epoch("t", 0) == 4
    for unchanged in (
        metadata.with_leader("t", 0, 2, 3),
        metadata.with_leader("t", 0, 9, 4),
        metadata.with_leader("t", 7, 2, 4),
        metadata.with_leader("u", 0, 2, 4),
    ):
        assert unchanged is metadata


def test_an_answer_without_brokers_or_names_changes_nothing() -> None:
    first = answer(topic("t", partition(0)))
    metadata = after(first, answer(topic(None), brokers=(), cluster_id=None))
    assert sorted(metadata.nodes) == [1, 2]
    assert metadata.cluster_id == "c"
    assert list(metadata.topics) == ["t"]
