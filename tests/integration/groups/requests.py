"""Group requests, sent one by one."""

from __future__ import annotations

from typing import Any

from tests.raw_client import Api, RawClient

from ottla.base.errors import ErrorCode

PROTOCOLS = [{"name": "range", "metadata": b"\0\1\0\0\0\0\xff\xff\xff\xff"}]


def join(client: RawClient, group: str, member_id: str = "", **fields: Any) -> Any:
    body = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": PROTOCOLS,
        **fields,
    }
    return client.call(Api.JOIN_GROUP, 9, **body)


def join_fully(client: RawClient, group: str, **fields: Any) -> Any:
    """Get a member ID first, then join with it."""
    asked = join(client, group, **fields)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = join(client, group, asked.member_id, **fields)
    assert joined.error_code == 0, joined
    return joined


def sync(client: RawClient, group: str, joined: Any, **fields: Any) -> Any:
    body = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": joined.member_id, "assignment": b"mine"}],
        **fields,
    }
    return client.call(Api.SYNC_GROUP, 5, **body)


def stable_member(client: RawClient, group: str, **fields: Any) -> Any:
    """Join as the only member and return the response once the group is stable."""
    joined = join_fully(client, group, **fields)
    assert bytes(sync(client, group, joined).assignment) == b"mine"
    return joined


def heartbeat(client: RawClient, group: str, joined: Any, **fields: Any) -> ErrorCode:
    body = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        **fields,
    }
    return ErrorCode(client.call(Api.HEARTBEAT, 4, **body).error_code)


def consumer_heartbeat(
    client: RawClient, group: str, member_id: str, epoch: int, *, version: int = 1, **fields: Any
) -> Any:
    body = {"group_id": group, "member_id": member_id, "member_epoch": epoch, **fields}
    return client.call(Api.CONSUMER_GROUP_HEARTBEAT, version, **body)


def consumer_join(
    client: RawClient, group: str, member_id: str, *topics: str, **fields: Any
) -> Any:
    asked = {
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
        **fields,
    }
    return consumer_heartbeat(client, group, member_id, 0, **asked)


def leave(client: RawClient, group: str, member_id: str) -> ErrorCode:
    answer = client.call(
        Api.LEAVE_GROUP, 5, group_id=group, members=[{"member_id": member_id, "reason": "test"}]
    )
    assert answer.error_code == 0
    return ErrorCode(answer.members[0].error_code)


def commit(
    client: RawClient,
    group: str,
    offsets: dict[tuple[str, int], int],
    joined: Any = None,
    *,
    version: int = 9,
    metadata: str = "",
    **fields: Any,
) -> list[ErrorCode]:
    """Commit offsets and return the error codes in the order of the response."""
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_metadata": metadata,
                "committed_leader_epoch": -1,
            }
        )
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1 if joined is None else joined.generation_id,
        "member_id": "" if joined is None else joined.member_id,
        "retention_time_ms": -1,
        "topics": [{"name": topic, "partitions": each} for topic, each in by_topic.items()],
        **fields,
    }
    answer = client.call(Api.OFFSET_COMMIT, version, **body)
    return [ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions]


def committed(client: RawClient, group: str) -> dict[tuple[str, int], int]:
    """Return all committed offsets of a group."""
    answer = client.call(Api.OFFSET_FETCH, 9, groups=[{"group_id": group, "topics": None}])
    (found,) = answer.groups
    assert found.error_code == 0, found
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in found.topics
        for each in topic.partitions
    }


def state(client: RawClient, group: str) -> str:
    (described,) = client.call(Api.DESCRIBE_GROUPS, 5, groups=[group]).groups
    assert described.error_code == 0
    name: str = described.group_state
    return name
