"""Groups with one member, and their offsets."""

from __future__ import annotations

from typing import Any

from tests.integration.scenarios.given import Given, Scenarios, by_name_or_id, same_topic
from tests.raw_client import Api

MEMBER_ID_REQUIRED = 79
UNKNOWN_TOPIC_ID = 100
UNKNOWN_MEMBER_ID = 25
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
ILLEGAL_GENERATION = 22
MEMBER_ID = "2uXMJ0W1RM6hB0lSxfSXoQ"
PROTOCOL = {"protocol_type": "consumer", "protocol_name": "range"}


def group_of(given: Given) -> str:
    return f"group of {given.topic}"


def with_coordinator(given: Given) -> Given:
    """Look for a coordinator, which creates the offsets topic the first time."""
    given.client.call(Api.FIND_COORDINATOR, 0, key=group_of(given))
    return given


def join(given: Given, version: int = 9, member_id: str = "") -> Any:
    """Join and return the final response; in newer versions the first only has a member ID."""
    answer = with_coordinator(given).client.call(
        Api.JOIN_GROUP,
        version,
        group_id=group_of(given),
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"metadata"}],
    )
    if answer.error_code == MEMBER_ID_REQUIRED and version >= 4:
        return join(given, version, answer.member_id)
    return answer


def sync(given: Given, joined: Any, version: int = 5) -> Any:
    return given.client.call(
        Api.SYNC_GROUP,
        version,
        group_id=group_of(given),
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        **PROTOCOL,
        assignments=[{"member_id": joined.member_id, "assignment": b"assigned"}],
    )


def stable(given: Given) -> Any:
    """Bring the group to a stable state with one member, and return its join response."""
    joined = join(given)
    assert sync(given, joined).error_code == 0
    return joined


def find_coordinator(given: Given, version: int) -> None:
    answer = given.client.call(
        Api.FIND_COORDINATOR, version, key="one", key_type=0, coordinator_keys=["one", "other"]
    )
    found = [answer] if version < 4 else answer.coordinators
    if version >= 4:
        assert [each.key for each in found] == ["one", "other"]
    for each in found:
        assert (each.error_code, each.node_id) == (0, 1)
        assert (each.host, each.port) == ("127.0.0.1", given.broker.port)


def join_group(given: Given, version: int) -> None:
    answer = join(given, version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id != ""
    (member,) = answer.members
    assert (member.member_id, bytes(member.metadata)) == (answer.member_id, b"metadata")
    if version >= 7:
        assert answer.protocol_type == "consumer"


def sync_group(given: Given, version: int) -> None:
    answer = sync(given, join(given), version)
    assert (answer.error_code, bytes(answer.assignment)) == (0, b"assigned")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


def heartbeat(given: Given, version: int) -> None:
    joined = stable(given)
    known = {"group_id": group_of(given), "member_id": joined.member_id}
    for generation_id, code in ((1, 0), (7, ILLEGAL_GENERATION)):
        answer = given.client.call(Api.HEARTBEAT, version, **known, generation_id=generation_id)
        assert answer.error_code == code
    stranger = {**known, "member_id": "stranger"}
    answer = given.client.call(Api.HEARTBEAT, version, **stranger, generation_id=1)
    assert answer.error_code == UNKNOWN_MEMBER_ID


def leave_group(given: Given, version: int) -> None:
    joined = stable(given)
    answer = given.client.call(
        Api.LEAVE_GROUP,
        version,
        group_id=group_of(given),
        member_id=joined.member_id,
        members=[{"member_id": joined.member_id}, {"member_id": "stranger"}],
    )
    assert answer.error_code == 0
    if version >= 3:
        codes = {each.member_id: each.error_code for each in answer.members}
        assert codes == {joined.member_id: 0, "stranger": UNKNOWN_MEMBER_ID}
    assert described(given).group_state == "Empty"


def described(given: Given, version: int = 5) -> Any:
    answer = given.client.call(
        Api.DESCRIBE_GROUPS, version, groups=[group_of(given)], include_authorized_operations=True
    )
    return answer.groups[0]


def describe_groups(given: Given, version: int) -> None:
    joined = stable(given)
    group = described(given, version)
    assert (group.error_code, group.group_id) == (0, group_of(given))
    assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
    assert group.protocol_data == "range"
    (member,) = group.members
    assert (member.member_id, member.client_id) == (joined.member_id, "raw")
    assert bytes(member.member_metadata) == b"metadata"
    assert bytes(member.member_assignment) == b"assigned"
    unknown = given.client.call(Api.DESCRIBE_GROUPS, version, groups=["nobody"]).groups[0]
    if version >= 6:
        assert unknown.error_code == GROUP_ID_NOT_FOUND
    assert unknown.group_state == "Dead"


def list_groups(given: Given, version: int) -> None:
    stable(given)
    answer = given.client.call(Api.LIST_GROUPS, version)
    assert answer.error_code == 0
    (group,) = [each for each in answer.groups if each.group_id == group_of(given)]
    assert group.protocol_type == "consumer"
    if version >= 4:
        assert group.group_state == "Stable"
        filtered = given.client.call(Api.LIST_GROUPS, version, states_filter=["Empty"]).groups
        assert group_of(given) not in [each.group_id for each in filtered]
    if version >= 5:
        assert group.group_type == "classic"


def commit(given: Given, version: int = 8, offset: int = 2) -> Any:
    by_id = version >= 10
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": "note"}
        for index in (0, 1)
    ]
    return with_coordinator(given).client.call(
        Api.OFFSET_COMMIT,
        version,
        group_id=group_of(given),
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=-1,
        topics=[{**by_name_or_id(given, by_id, "name"), "partitions": partitions}],
    )


def offset_commit(given: Given, version: int) -> None:
    (topic,) = commit(given, version).topics
    assert same_topic(given, topic, version >= 10, "name")
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (0, 0),
        (1, 0),
    ]
    assert committed(given, 8)[0] == (2, "note", 0)


def committed(given: Given, version: int, group: str | None = None) -> dict[int, Any]:
    """Return partition -> committed offset, metadata and error."""
    by_id = version >= 10
    asked = {**by_name_or_id(given, by_id, "name"), "partition_indexes": [0, 1]}
    name = group or group_of(given)
    answer = given.client.call(
        Api.OFFSET_FETCH,
        version,
        group_id=name,
        topics=[asked],
        groups=[{"group_id": name, "topics": [asked]}],
    )
    found = answer if version < 8 else answer.groups[0]
    assert found.error_code == 0
    if version >= 8:
        assert found.group_id == name
    (topic,) = found.topics
    assert same_topic(given, topic, by_id, "name")
    return {
        each.partition_index: (each.committed_offset, each.metadata, each.error_code)
        for each in topic.partitions
    }


def offset_fetch(given: Given, version: int) -> None:
    commit(given)
    assert committed(given, version) == {0: (2, "note", 0), 1: (2, "note", 0)}
    assert committed(given, version, "nobody") == {0: (-1, "", 0), 1: (-1, "", 0)}
    unknown = given._replace(topic="nobody", topic_id=bytes(range(16)))
    code = UNKNOWN_TOPIC_ID if version >= 10 else 0
    found = committed(unknown, version, group_of(given))
    assert found == {0: (-1, "", code), 1: (-1, "", code)}


def delete_groups(given: Given, version: int) -> None:
    other = given._replace(topic=f"{given.topic} too")
    names = [group_of(given), group_of(other), "nobody"]
    commit(given)
    stable(other)
    answer = given.client.call(Api.DELETE_GROUPS, version, groups_names=names)
    codes = {each.group_id: each.error_code for each in answer.results}
    assert codes == {names[0]: 0, names[1]: NON_EMPTY_GROUP, "nobody": GROUP_ID_NOT_FOUND}
    assert committed(given, 8)[0][0] == -1


def offset_delete(given: Given, version: int) -> None:
    commit(given)
    topics = [{"name": given.topic, "partitions": [{"partition_index": 0}]}]
    answer = given.client.call(Api.OFFSET_DELETE, version, group_id=group_of(given), topics=topics)
    (topic,) = answer.topics
    assert (answer.error_code, topic.name, topic.partitions[0].error_code) == (0, given.topic, 0)
    found = committed(given, 8)
    assert (found[0][0], found[1][0]) == (-1, 2)


def consumer_joined(given: Given, version: int = 1) -> Any:
    """Send the first heartbeat of a member of the consumer protocol, which chooses its own ID."""
    return with_coordinator(given).client.call(
        Api.CONSUMER_GROUP_HEARTBEAT,
        version,
        group_id=group_of(given),
        member_id=MEMBER_ID,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[given.topic],
        topic_partitions=[],
    )


def consumer_group_heartbeat(given: Given, version: int) -> None:
    joined = consumer_joined(given, version)
    assert (joined.error_code, joined.member_id) == (0, MEMBER_ID)
    assert joined.member_epoch > 0
    assert joined.heartbeat_interval_ms > 0
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, sorted(assigned.partitions)) == (given.topic_id, [0, 1])
    fenced = given.client.call(
        Api.CONSUMER_GROUP_HEARTBEAT,
        version,
        group_id=group_of(given),
        member_id="somebody else",
        member_epoch=7,
    )
    assert fenced.error_code == UNKNOWN_MEMBER_ID
    assert fenced.error_message


def consumer_group_describe(given: Given, version: int) -> None:
    joined = consumer_joined(given)
    answer = given.client.call(
        Api.CONSUMER_GROUP_DESCRIBE,
        version,
        group_ids=[group_of(given), "nobody"],
        include_authorized_operations=True,
    )
    group, nobody = answer.groups
    assert (group.error_code, group.group_id) == (0, group_of(given))
    assert (group.group_state, group.assignor_name) == ("Stable", "uniform")
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.member_epoch) == (MEMBER_ID, joined.member_epoch)
    assert list(member.subscribed_topic_names) == [given.topic]
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, sorted(assigned.partitions)) == (given.topic, [0, 1])
    if version >= 1:
        assert member.member_type == 1
    assert nobody.error_code == GROUP_ID_NOT_FOUND


SCENARIOS: Scenarios = {
    Api.FIND_COORDINATOR: find_coordinator,
    Api.JOIN_GROUP: join_group,
    Api.SYNC_GROUP: sync_group,
    Api.HEARTBEAT: heartbeat,
    Api.LEAVE_GROUP: leave_group,
    Api.DESCRIBE_GROUPS: describe_groups,
    Api.LIST_GROUPS: list_groups,
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
    Api.DELETE_GROUPS: delete_groups,
    Api.OFFSET_DELETE: offset_delete,
    Api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
}
