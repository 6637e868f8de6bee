"""Errors of the consumer protocol as a client gets them.

Errors that depend on the group alone are in tests/unit/core/group/test_consumer_errors.py."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.integration.groups.requests import (
    commit,
    consumer_heartbeat,
    consumer_join,
    heartbeat,
    join,
    stable_member,
)
from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode
from ottla.testing.broker import BrokerProcess


class Given(NamedTuple):
    """A topic, and a consumer group with a member."""

    client: RawClient
    topic: str
    group: str
    member: Any


@pytest.fixture
def given(client: RawClient, topic: str, group: str) -> Given:
    client.create_topic(topic, 2)
    # A test may be slow, and nothing in it sends heartbeats.
    change = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "60000"}
    resource = {"resource_type": 32, "resource_name": group, "configs": [change]}
    client.call(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    member = consumer_join(client, group, "m", topic)
    assert member.error_code == 0, member
    return Given(client, topic, group, member)


@pytest.mark.parametrize("version", [0, 1])
def test_a_joining_member_gets_its_whole_assignment(given: Given, version: int) -> None:
    member = consumer_join(given.client, f"{given.group}-x", "m", given.topic, version=version)
    assert (member.error_code, member.error_message) == (0, None)
    assert (member.member_id, member.member_epoch) == ("m", 1)
    assert member.heartbeat_interval_ms == 200
    (topic,) = member.assignment.topic_partitions
    assert topic.partitions == [0, 1]
    again = consumer_heartbeat(given.client, f"{given.group}-x", "m", 1, version=version)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)


def test_in_version_0_the_broker_makes_ids(given: Given) -> None:
    member = consumer_join(given.client, f"{given.group}-x", "", given.topic, version=0)
    assert member.error_code == 0
    assert len(member.member_id) == 36


HEARTBEATS: dict[str, tuple[dict[str, Any], ErrorCode, str]] = {
    "no group": ({"group": ""}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
    "no member": ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
    "a wrong epoch": ({"epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid."),
    "an empty instance": (
        {"instance_id": ""},
        ErrorCode.INVALID_REQUEST,
        "InstanceId can't be empty.",
    ),
    "a join that says nothing": (
        {"epoch": 0},
        ErrorCode.INVALID_REQUEST,
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    "an unknown assignor": (
        {"server_assignor": "mine"},
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        "ServerAssignor mine is not supported. Supported assignors: uniform, range.",
    ),
    "a pattern that is none": (
        {"subscribed_topic_regex": "["},
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        "SubscribedTopicRegex `[` is not a valid regular expression: missing closing ].",
    ),
    "no such group": (
        {"group": "nobody's"},
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Consumer group nobody's not found.",
    ),
    "a stranger": ({"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID, "Member x is not a member"),
    "an epoch to come": ({"epoch": 9}, ErrorCode.FENCED_MEMBER_EPOCH, "a greater member epoch (9)"),
    "an unknown instance": (
        {"instance_id": "i"},
        ErrorCode.UNKNOWN_MEMBER_ID,
        "Instance id i is unknown.",
    ),
}


@pytest.mark.parametrize(("fields", "code", "message"), HEARTBEATS.values(), ids=HEARTBEATS)
def test_heartbeat(given: Given, fields: dict[str, Any], code: ErrorCode, message: str) -> None:
    asked = {"group": given.group, "member_id": "m", "epoch": 1, **fields}
    answer = consumer_heartbeat(given.client, **asked)
    assert answer.error_code == code
    assert message in answer.error_message
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)
    assert consumer_heartbeat(given.client, given.group, "m", 1).error_code == 0


def test_static_members(given: Given) -> None:
    client, group = given.client, given.group
    assert consumer_join(client, group, "s1", given.topic, instance_id="i").error_code == 0
    taken = consumer_join(client, group, "s2", given.topic, instance_id="i")
    assert taken.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    paused = consumer_heartbeat(client, group, "s1", -2, instance_id="i")
    assert (paused.error_code, paused.member_epoch) == (0, -2)
    assert consumer_join(client, group, "s2", given.topic, instance_id="i").error_code == 0
    old = consumer_heartbeat(client, group, "s1", 2, instance_id="i")
    assert old.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_commits_and_fetches_in_another_epoch(given: Given) -> None:
    client, group, topic = given.client, given.group, given.topic

    def commit_in(epoch: int, version: int = 9) -> list[ErrorCode]:
        fields = {"member_id": "m", "generation_id_or_member_epoch": epoch}
        return commit(client, group, {(topic, 0): 5}, version=version, **fields)

    assert commit_in(1) == [ErrorCode.NONE]
    assert commit_in(2) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert commit_in(1, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    assert commit(client, group, {(topic, 0): 5}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    for member_id, epoch, code in (
        ("m", 1, ErrorCode.NONE),
        ("m", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, -1, ErrorCode.NONE),
    ):
        asked = [{"name": topic, "partition_indexes": [0]}]
        groups = [
            {"group_id": group, "member_id": member_id, "member_epoch": epoch, "topics": asked}
        ]
        (answer,) = client.call(Api.OFFSET_FETCH, 9, groups=groups).groups
        assert answer.error_code == code
        assert len(answer.topics) == (code is ErrorCode.NONE)


def test_describing_groups_of_the_other_protocol(given: Given) -> None:
    client = given.client
    classic = f"{given.group}-classic"
    stable_member(client, classic)
    asked = [given.group, classic, "nobody's", ""]
    answer = client.call(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=asked)
    found = {each.group_id: (each.error_code, each.error_message) for each in answer.groups}
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert found == {
        given.group: (0, None),
        classic: (missing, f"Group {classic} is not a consumer group."),
        "nobody's": (missing, "Group nobody's not found."),
        "": (ErrorCode.INVALID_GROUP_ID, None),
    }
    (described,) = client.call(Api.DESCRIBE_GROUPS, 6, groups=[given.group]).groups
    assert (described.error_code, described.group_state) == (missing, "Dead")
    assert described.error_message == f"Group {given.group} is not a classic group."
    (described,) = client.call(Api.DESCRIBE_GROUPS, 5, groups=[given.group]).groups
    assert (described.error_code, described.group_state) == (0, "Dead")
    listed = client.call(Api.LIST_GROUPS, 5, types_filter=["Consumer"]).groups
    assert (given.group, "consumer", "Stable") in [
        (each.group_id, each.group_type, each.group_state) for each in listed
    ]
    assert classic not in [each.group_id for each in listed]


def test_a_group_whose_assignments_are_no_consumers_is_not_upgraded(given: Given) -> None:
    group = f"{given.group}-classic"
    member = stable_member(given.client, group)
    refused = consumer_join(given.client, group, "m", given.topic)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in refused.error_message
    assert heartbeat(given.client, group, member) is ErrorCode.NONE


def test_deleting_what_is_in_use(given: Given) -> None:
    client, group, topic = given.client, given.group, given.topic
    (result,) = client.call(Api.DELETE_GROUPS, 2, groups_names=[group]).results
    assert result.error_code == ErrorCode.NON_EMPTY_GROUP
    topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    answer = client.call(Api.OFFSET_DELETE, 0, group_id=group, topics=topics)
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    known = {"member_id": "m", "generation_id_or_member_epoch": 1}
    assert commit(client, group, {(topic, 0): 5}, **known) == [ErrorCode.NONE]
    assert consumer_heartbeat(client, group, "m", -1).error_code == 0
    (result,) = client.call(Api.DELETE_GROUPS, 2, groups_names=[group]).results
    assert result.error_code == ErrorCode.NONE


def test_a_broker_without_the_consumer_protocol() -> None:
    overrides = {"group.coordinator.rebalance.protocols": "classic"}
    with BrokerProcess(overrides=overrides) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        client.call(Api.FIND_COORDINATOR, 0, key="any")
        code = consumer_join(client, "g", "m", "t").error_code
        assert code == ErrorCode.UNSUPPORTED_VERSION


def test_without_the_offsets_topic_there_is_no_coordinator(own_broker: BrokerProcess) -> None:
    with RawClient(own_broker.port) as client:
        client.create_topic("t")
        assert consumer_join(client, "g", "m", "t").error_code == ErrorCode.NOT_COORDINATOR
        answer = client.call(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"])
        assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_groups_are_as_large_as_configured() -> None:
    overrides = {"group.consumer.max.size": "1", "group.max.size": "1"}
    with BrokerProcess(overrides=overrides) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        client.call(Api.FIND_COORDINATOR, 0, key="any")
        assert consumer_join(client, "g", "m1", "t").error_code == 0
        full = ErrorCode.GROUP_MAX_SIZE_REACHED
        assert consumer_join(client, "g", "m2", "t").error_code == full
        member = stable_member(client, "classic")
        assert join(client, "classic").error_code == full
        assert heartbeat(client, "classic", member) is ErrorCode.NONE
