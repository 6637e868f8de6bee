"""Every error that the protocol defines for groups, as a client gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.integration.groups.requests import (
    commit,
    heartbeat,
    join,
    join_fully,
    leave,
    stable_member,
    state,
    sync,
)
from tests.raw_client import Api, RawClient, eventually

from ottla.base.errors import ErrorCode
from ottla.testing.broker import BrokerProcess


class Given(NamedTuple):
    """A topic, and a group with one stable member."""

    client: RawClient
    topic: str
    group: str
    member: Any

    @property
    def offsets(self) -> dict[tuple[str, int], int]:
        return {(self.topic, 0): 1}


@pytest.fixture
def given(client: RawClient, topic: str, group: str) -> Given:
    client.create_topic(topic)
    return Given(client, topic, group, stable_member(client, group))


class Stranger(NamedTuple):
    member_id: str = "stranger"
    generation_id: int = 1


JOINS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "no group id": ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    "too short a session": ({"session_timeout_ms": 99}, ErrorCode.INVALID_SESSION_TIMEOUT),
    "too long a session": ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
    "a made-up id": ({"member_id": "made up"}, ErrorCode.UNKNOWN_MEMBER_ID),
    "a made-up id in a new group": (
        {"group_id": "nobody's", "member_id": "made up"},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "another protocol type": ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "no shared protocol": (
        {"protocols": [{"name": "mine", "metadata": b""}]},
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "no protocol": ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "no id yet": ({}, ErrorCode.MEMBER_ID_REQUIRED),
    "an unknown instance": (
        {"member_id": "x", "group_instance_id": "i"},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
}


@pytest.mark.parametrize(("fields", "code"), JOINS.values(), ids=JOINS)
def test_join(given: Given, fields: dict[str, Any], code: ErrorCode) -> None:
    answer = join(given.client, **{"group": given.group, **fields})  # type: ignore[arg-type]
    assert answer.error_code == code
    assert (answer.generation_id, answer.protocol_name, answer.leader) == (-1, None, "")
    if code is not ErrorCode.MEMBER_ID_REQUIRED:
        assert answer.member_id == fields.get("member_id", "")
    assert state(given.client, given.group) == "Stable"


SYNCS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "no group id": ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    "another group": ({"group_id": "nobody's"}, ErrorCode.UNKNOWN_MEMBER_ID),
    "a stranger": ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
    "an old generation": ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
    "a future generation": ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
    "another type": ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "another protocol": ({"protocol_name": "mine"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "an unknown instance": ({"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
}


@pytest.mark.parametrize(("fields", "code"), SYNCS.values(), ids=SYNCS)
def test_sync(given: Given, fields: dict[str, Any], code: ErrorCode) -> None:
    answer = sync(given.client, given.group, given.member, **fields)
    assert (answer.error_code, bytes(answer.assignment)) == (code, b"")


HEARTBEATS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    name: SYNCS[name]
    for name in SYNCS
    if name not in ("another type", "another protocol")
}  # fmt: skip


@pytest.mark.parametrize(("fields", "code"), HEARTBEATS.values(), ids=HEARTBEATS)
def test_heartbeat(given: Given, fields: dict[str, Any], code: ErrorCode) -> None:
    assert heartbeat(given.client, given.group, given.member, **fields) is code


def test_heartbeat_sync_and_commit_during_a_rebalance(given: Given, broker: BrokerProcess) -> None:
    client, group, member = given.client, given.group, given.member
    with RawClient(broker.port) as other:
        asked = join(other, group)
        parked = other.send(
            Api.JOIN_GROUP, 9, group_id=group, session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000, member_id=asked.member_id, protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )  # fmt: skip
        eventually(lambda: state(client, group), lambda name: name == "PreparingRebalance")
        in_progress = ErrorCode.REBALANCE_IN_PROGRESS
        assert heartbeat(client, group, member) is in_progress
        assert sync(client, group, member).error_code == in_progress
        assert commit(client, group, given.offsets, member) == [ErrorCode.NONE]
        again = join(client, group, member.member_id)
        assert other.receive(Api.JOIN_GROUP, 9, parked).generation_id == again.generation_id == 2
        assert commit(client, group, given.offsets, again) == [in_progress]
        assert commit(client, group, given.offsets, member) == [ErrorCode.ILLEGAL_GENERATION]


def test_leave(given: Given) -> None:
    client, group = given.client, given.group
    assert leave(client, group, "stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(client, "nobody's", "stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    answer = client.call(Api.LEAVE_GROUP, 5, group_id="", members=[{"member_id": "x"}])
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID
    old = client.call(Api.LEAVE_GROUP, 0, group_id=group, member_id="stranger")
    assert old.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(client, group, given.member.member_id) is ErrorCode.NONE
    assert heartbeat(client, group, given.member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_fenced_static_member(client: RawClient, group: str) -> None:
    old = join(client, group, group_instance_id="i")
    sync(client, group, old, group_instance_id="i")
    new = join(client, group, group_instance_id="i")
    assert (new.error_code, new.generation_id) == (0, 1)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert heartbeat(client, group, old, group_instance_id="i") is fenced
    assert sync(client, group, old, group_instance_id="i").error_code == fenced
    assert join(client, group, old.member_id, group_instance_id="i").error_code == fenced
    answer = client.call(
        Api.LEAVE_GROUP,
        5,
        group_id=group,
        members=[{"member_id": old.member_id, "group_instance_id": "i"}],
    )
    assert answer.members[0].error_code == fenced
    assert heartbeat(client, group, new, group_instance_id="i") is ErrorCode.NONE


COMMITS: dict[str, tuple[Callable[[Given], list[ErrorCode]], ErrorCode]] = {
    "a stranger": (
        lambda given: commit(given.client, given.group, given.offsets, Stranger()),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "nobody, while there are members": (
        lambda given: commit(given.client, given.group, given.offsets),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    "another generation": (
        lambda given: commit(
            given.client,
            given.group,
            given.offsets,
            given.member,
            generation_id_or_member_epoch=9,
        ),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "no such group": (
        lambda given: commit(given.client, "nobody's", given.offsets, Stranger()),
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    "no such group, an older client": (
        lambda given: commit(given.client, "nobody's", given.offsets, Stranger(), version=8),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    "too much metadata": (
        lambda given: commit(
            given.client, given.group, given.offsets, given.member, metadata="x" * 4_097
        ),
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ),
    "no such topic": (
        lambda given: commit(given.client, given.group, {("nowhere", 0): 1}, given.member),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "no such partition": (
        lambda given: commit(given.client, given.group, {(given.topic, 1): 1}, given.member),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "an unknown instance": (
        lambda given: commit(
            given.client, given.group, given.offsets, given.member, group_instance_id="i"
        ),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
}


@pytest.mark.parametrize(("ask", "code"), COMMITS.values(), ids=COMMITS)
def test_commit(given: Given, ask: Callable[[Given], list[ErrorCode]], code: ErrorCode) -> None:
    assert ask(given) == [code]


def test_what_can_be_committed_is(given: Given) -> None:
    client, group, topic = given.client, given.group, given.topic
    offsets = {("nowhere", 0): 1, (topic, 7): 1, (topic, 0): 4}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(client, group, offsets, given.member) == [unknown, unknown, ErrorCode.NONE]


def test_unknown_topic_ids(given: Given) -> None:
    partition = {"partition_index": 0, "committed_offset": 1}
    answer = given.client.call(
        Api.OFFSET_COMMIT,
        10,
        group_id=given.group,
        generation_id_or_member_epoch=1,
        member_id=given.member.member_id,
        topics=[{"topic_id": b"x" * 16, "partitions": [partition]}],
    )
    (topic,) = answer.topics
    assert topic.topic_id == b"x" * 16
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    asked = {"topic_id": b"x" * 16, "partition_indexes": [0]}
    answer = given.client.call(
        Api.OFFSET_FETCH, 10, groups=[{"group_id": given.group, "topics": [asked]}]
    )
    (topic,) = answer.groups[0].topics
    assert topic.topic_id == b"x" * 16
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert topic.partitions[0].committed_offset == -1


def test_offsets_of_many_groups_at_once(given: Given) -> None:
    client, topic = given.client, given.topic
    names = [f"{given.group}-{number}" for number in range(10)]
    for number, name in enumerate(names):
        commit(client, name, {(topic, 0): number})
    asked = [{"name": topic, "partition_indexes": [0]}]
    answer = client.call(
        Api.OFFSET_FETCH, 9, groups=[{"group_id": name, "topics": asked} for name in names]
    )
    assert [each.group_id for each in answer.groups] == names
    offsets = [each.topics[0].partitions[0].committed_offset for each in answer.groups]
    assert offsets == list(range(10))


def test_offset_delete(given: Given) -> None:
    def delete(group: str, topic: str, *partitions: int) -> Any:
        asked = [{"partition_index": each} for each in partitions]
        topics = [{"name": topic, "partitions": asked}]
        return given.client.call(Api.OFFSET_DELETE, 0, group_id=group, topics=topics)

    assert delete("", given.topic, 0).error_code == ErrorCode.INVALID_GROUP_ID
    assert delete("nobody's", given.topic, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    answer = delete(given.group, given.topic, 0, 5)
    codes = [each.error_code for each in answer.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    other = f"{given.group}-connect"
    join_fully(given.client, other, protocol_type="connect")
    assert delete(other, given.topic, 0).error_code == ErrorCode.NON_EMPTY_GROUP


def test_delete_groups(given: Given) -> None:
    names = [given.group, "nobody's", given.group]
    answer = given.client.call(Api.DELETE_GROUPS, 2, groups_names=names)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        (given.group, ErrorCode.NON_EMPTY_GROUP),
        ("nobody's", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


@pytest.mark.parametrize("version", range(1, 7))
def test_there_are_no_share_groups(client: RawClient, version: int) -> None:
    for key_type in (2, 9):
        code = ErrorCode.INVALID_REQUEST
        answer = client.call(
            Api.FIND_COORDINATOR, version, key="x", key_type=key_type, coordinator_keys=["x"]
        )
        found = answer if version < 4 else answer.coordinators[0]
        assert (found.error_code, found.node_id, found.host, found.port) == (code, -1, "", -1)
        assert found.error_message


def test_without_the_offsets_topic_there_is_no_coordinator(own_broker: BrokerProcess) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic("t")
        assert join(client, "g").error_code == ErrorCode.NOT_COORDINATOR
        assert heartbeat(client, "g", Stranger()) is ErrorCode.NOT_COORDINATOR
        assert commit(client, "g", {("t", 0): 1}) == [ErrorCode.NOT_COORDINATOR]
        asked = [{"group_id": "g", "topics": None}]
        answer = client.call(Api.OFFSET_FETCH, 9, groups=asked)
        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        topics = [{"name": "t", "partition_indexes": [0]}]
        oldest = client.call(Api.OFFSET_FETCH, 1, group_id="g", topics=topics)
        (partition,) = oldest.topics[0].partitions
        assert partition.error_code == ErrorCode.NOT_COORDINATOR
        answer = client.call(Api.DESCRIBE_GROUPS, 5, groups=["g"])
        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        assert client.call(Api.LIST_GROUPS, 5).groups == []
        found = client.call(Api.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g", "h"])
        assert [(each.key, each.node_id) for each in found.coordinators] == [("g", 1), ("h", 1)]
        assert join(client, "g").error_code == ErrorCode.MEMBER_ID_REQUIRED
