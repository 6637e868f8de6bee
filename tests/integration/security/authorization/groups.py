"""Groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.integration.security.authorization.case import (
    Body,
    Subject,
    case,
    partition_codes,
    shown,
    since,
    until,
    without_details,
)
from tests.integration.security.authorization.scene import Scene
from tests.raw_client import Api, RawClient, eventually

from ottla.base.acl import AclResourceType
from ottla.base.errors import ErrorCode as E
from ottla.core.security.permissions import (
    DELETE_GROUP,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
)

BY_ID = 10
"""Version of OffsetCommit and OffsetFetch since which topics have IDs."""
SEVERAL_GROUPS = 8
"""Version of OffsetFetch since which a request has several groups."""
SEVERAL_KEYS = 4
"""Version of FindCoordinator since which a request has several keys."""
GROUP, TRANSACTION, SHARE = 0, 1, 2
MEMBER_ID = "2uXMJ0W1RM6hB0lSxfSXoQ"
NO_STATE = {"", "Dead", "Unknown"}
"""States in the description of a group that a client may not see."""
NO_MEMBER = {"generation_id": 1, "member_id": "nobody"}
UNKNOWN_MEMBER = {E.UNKNOWN_MEMBER_ID}
FETCHED_MISSING: dict[str, Any] = {
    "missing": {E.UNKNOWN_TOPIC_ID},
    "missing_denied": E.UNKNOWN_TOPIC_ID,
}


def topic_of(subject: Subject, version: int) -> dict[str, Any]:
    return {"topic_id": subject.topic_id} if version >= BY_ID else {"name": subject.topic}


def offset_commit(subject: Subject, version: int) -> Body:
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    return {
        "group_id": subject.group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{**topic_of(subject, version), "partitions": [partition]}],
    }


def in_topics(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return partition_codes(answer.topics)


def offset_fetch(subject: Subject, version: int) -> Body:
    topics = [{**topic_of(subject, version), "partition_indexes": [0]}]
    return offsets_of(subject, topics)


def all_offsets(subject: Subject, _: int) -> Body:
    return offsets_of(subject, None)


def offsets_of(subject: Subject, topics: list[dict[str, Any]] | None) -> Body:
    return {
        "group_id": subject.group,
        "topics": topics,
        "groups": [{"group_id": subject.group, "topics": topics}],
    }


def fetched_group(answer: Any, _: Subject, version: int) -> Iterable[int]:
    if version >= SEVERAL_GROUPS:
        return [each.error_code for each in answer.groups]
    return [answer.error_code] if version >= 2 else partition_codes(answer.topics)


def fetched_topics(answer: Any, subject: Subject, version: int) -> Iterable[int]:
    """Return the codes of partitions, after those of their group."""
    found = answer.groups[0] if version >= SEVERAL_GROUPS else answer
    return [
        code
        for topic in found.topics
        for each in topic.partitions
        for code in without_details(
            found.error_code or each.error_code, each.committed_offset != -1, each.metadata
        )
    ]


def fetched_all_topics(answer: Any, subject: Subject, version: int) -> Iterable[int]:
    found = answer.groups[0] if version >= SEVERAL_GROUPS else answer
    if found.error_code:
        return [found.error_code]
    if version >= BY_ID:
        return shown(subject.topic_id in [each.topic_id for each in found.topics])
    return shown(subject.topic in [each.name for each in found.topics])


def find_coordinator(type: int, key: Callable[[Subject], str]) -> Callable[[Subject, int], Body]:
    def body(subject: Subject, _: int) -> Body:
        return {"key": key(subject), "key_type": type, "coordinator_keys": [key(subject)]}

    return body


def found_coordinators(answer: Any, _: Subject, version: int) -> Iterable[int]:
    found = answer.coordinators if version >= SEVERAL_KEYS else [answer]
    return [
        code
        for each in found
        for code in without_details(each.error_code, each.host, each.node_id != -1)
    ]


def join_group(subject: Subject, _: int) -> Body:
    """Return a request that is invalid, so that no member joins."""
    return {
        "group_id": subject.group,
        "session_timeout_ms": 1,
        "rebalance_timeout_ms": 1,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }


def without_member(subject: Subject, _: int) -> Body:
    return {
        "group_id": subject.group,
        **NO_MEMBER,
    }


def sync_group(subject: Subject, _: int) -> Body:
    return {
        "group_id": subject.group,
        **NO_MEMBER,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    }


def leave_group(subject: Subject, _: int) -> Body:
    member_id = NO_MEMBER["member_id"]
    return {
        "group_id": subject.group,
        "member_id": member_id,
        "members": [{"member_id": member_id}],
    }


def left_group(answer: Any, _: Subject, version: int) -> Iterable[int]:
    return [answer.error_code or each.error_code for each in answer.members] or [answer.error_code]


def top_level(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [answer.error_code]


def describe_group(subject: Subject, _: int) -> Body:
    return {"groups": [subject.group]}


def described_groups(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [
        code
        for each in answer.groups
        for code in without_details(each.error_code, each.members, each.group_state not in NO_STATE)
    ]


def listed_groups(answer: Any, subject: Subject, _: int) -> Iterable[int]:
    listed = subject.group in [each.group_id for each in answer.groups]
    return [answer.error_code] if answer.error_code else shown(listed)


def with_new_group(scene: Scene, subject: Subject) -> Subject:
    """Return a subject with a group that the request may delete."""
    if not subject.exists:
        return subject
    group = scene.new_name("group")
    scene.commit(group)
    return subject._replace(group=group)


def delete_groups(subject: Subject, _: int) -> Body:
    return {"groups_names": [subject.group]}


def in_results(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [each.error_code for each in answer.results]


def offset_delete(subject: Subject, _: int) -> Body:
    topics = [{"name": subject.topic, "partitions": [{"partition_index": 0}]}]
    return {"group_id": subject.group, "topics": topics}


def deleted_offsets(answer: Any, _: Subject, __: int) -> Iterable[int]:
    return [answer.error_code or code for code in partition_codes(answer.topics)]


# ------------------------------------------------------------------------- the consumer protocol


def consumer(group: str, epoch: int = 7, **more: Any) -> dict[str, Any]:
    """Return the heartbeat of a member, by default of one that the group does not have."""
    return {
        "group_id": group,
        "member_id": MEMBER_ID,
        "member_epoch": epoch,
        "rebalance_timeout_ms": 10_000,
        "topic_partitions": [] if epoch == 0 else None,
        **more,
    }


def heartbeat(subject: Subject, _: int) -> Body:
    return consumer(subject.group)


def subscribe(subject: Subject, _: int) -> Body:
    return consumer(subject.group, subscribed_topic_names=[subject.topic])


def with_consumer(scene: Scene, subject: Subject) -> Subject:
    """Return a subject with a new group of the consumer protocol, whose member has a partition."""
    if not subject.exists:
        return subject
    group = scene.new_name("consumers")
    topic, topic_id = subject.topic, subject.topic_id
    assigned(scene.admin, group, topic_id, subscribed_topic_names=[topic])
    return subject._replace(group=group)


def without_members(scene: Scene, subject: Subject) -> Subject:
    """Return a subject with a new group of the consumer protocol whose only member has left."""
    if not subject.exists:
        return subject
    made = with_consumer(scene, subject)
    scene.admin.call(Api.CONSUMER_GROUP_HEARTBEAT, **consumer(made.group, epoch=-1))
    return made


def assigned(client: RawClient, group: str, topic_id: bytes, **subscription: Any) -> set[bytes]:
    """Join a group, wait until a topic is assigned, and return the IDs of all assigned topics."""

    def joined() -> Any:
        body = consumer(group, epoch=0, **subscription)
        return client.call(Api.CONSUMER_GROUP_HEARTBEAT, **body)

    transient = {E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE}
    answer = eventually(joined, lambda each: each.error_code not in transient)
    assert answer.error_code == 0, answer
    epoch, found = answer.member_epoch, assigned_in(answer)

    def heartbeat() -> set[bytes]:
        nonlocal epoch
        answer = client.call(Api.CONSUMER_GROUP_HEARTBEAT, **consumer(group, epoch))
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        return found | assigned_in(answer)

    return found if topic_id in found else eventually(heartbeat, lambda all: topic_id in all)


def assigned_in(answer: Any) -> set[bytes]:
    assignment = answer.assignment
    return set() if assignment is None else {each.topic_id for each in assignment.topic_partitions}


def with_two_topics(scene: Scene, subject: Subject) -> Subject:
    """Return a subject with two new topics and the name of a new group."""
    name = scene.new_name("regex")
    topic_id, control_id = (scene.create(f"{name}-{each}") for each in ("asked", "control"))
    return subject._replace(
        topic=f"{name}-asked",
        topic_id=topic_id,
        group=name,
        control=f"{name}-control",
        control_id=control_id,
    )


def subscribe_to_regex(client: RawClient, subject: Subject, _: int) -> Iterable[int]:
    """Subscribe to both topics, wait for the one that the client may see, and look for the other.

    Brokers resolve regular expressions in the background."""
    found = assigned(
        client,
        subject.group,
        subject.control_id,
        subscribed_topic_names=[],
        subscribed_topic_regex=f"{subject.group}-.*",
    )
    client.call(Api.CONSUMER_GROUP_HEARTBEAT, **consumer(subject.group, epoch=-1))
    return shown(subject.topic_id in found)


def describe_consumers(subject: Subject, _: int) -> Body:
    return {"group_ids": [subject.group]}


def described_consumers(answer: Any, _: Subject, __: int) -> Iterable[int]:
    (group,) = answer.groups
    return without_details(group.error_code, group.members)


IN_GROUP: dict[str, Any] = {"codes": top_level, "missing": UNKNOWN_MEMBER}

CASES = [
    case(
        Api.OFFSET_COMMIT,
        "the group",
        body=offset_commit,
        codes=in_topics,
        missing={0},
        after=(READ_TOPIC,),
    ),
    case(
        Api.OFFSET_COMMIT,
        "each topic",
        label="topic by name",
        versions=until(Api.OFFSET_COMMIT, BY_ID),
        body=offset_commit,
        codes=in_topics,
        missing={E.UNKNOWN_TOPIC_OR_PARTITION},
        before=(READ_GROUP,),
    ),
    case(
        Api.OFFSET_COMMIT,
        "each topic",
        label="topic by ID",
        versions=since(Api.OFFSET_COMMIT, BY_ID),
        body=offset_commit,
        codes=in_topics,
        before=(READ_GROUP,),
        **FETCHED_MISSING,
    ),
    case(
        Api.OFFSET_FETCH,
        "each group",
        body=offset_fetch,
        codes=fetched_group,
        missing={0},
        after=(DESCRIBE_TOPIC,),
    ),
    case(
        Api.OFFSET_FETCH,
        "named topics",
        label="topic by name",
        versions=until(Api.OFFSET_FETCH, BY_ID),
        body=offset_fetch,
        codes=fetched_topics,
        missing={0},
        before=(DESCRIBE_GROUP,),
    ),
    case(
        Api.OFFSET_FETCH,
        "named topics",
        label="topic by ID",
        versions=since(Api.OFFSET_FETCH, BY_ID),
        body=offset_fetch,
        codes=fetched_topics,
        before=(DESCRIBE_GROUP,),
        **FETCHED_MISSING,
    ),
    case(
        Api.OFFSET_FETCH,
        "all topics",
        versions=since(Api.OFFSET_FETCH, 2),
        body=all_offsets,
        codes=fetched_all_topics,
        before=(DESCRIBE_GROUP,),
    ),
    case(
        Api.FIND_COORDINATOR,
        "key type 0",
        body=find_coordinator(GROUP, lambda subject: subject.group),
        codes=found_coordinators,
        missing={0},
    ),
    case(
        Api.FIND_COORDINATOR,
        "key type 1",
        versions=since(Api.FIND_COORDINATOR, 1),
        body=find_coordinator(TRANSACTION, lambda subject: subject.transactional_id),
        codes=found_coordinators,
        missing={0},
    ),
    case(
        Api.FIND_COORDINATOR,
        "key type 2",
        versions=since(Api.FIND_COORDINATOR, 6),
        body=find_coordinator(SHARE, lambda subject: f"{subject.group}:{'A' * 22}:0"),
        codes=found_coordinators,
        allowed={0, E.INVALID_REQUEST},
    ),
    case(
        Api.JOIN_GROUP,
        "the group",
        body=join_group,
        codes=top_level,
        allowed={E.INVALID_SESSION_TIMEOUT},
        missing={E.INVALID_SESSION_TIMEOUT},
    ),
    case(Api.HEARTBEAT, "the group", body=without_member, allowed=UNKNOWN_MEMBER, **IN_GROUP),
    case(Api.SYNC_GROUP, "the group", body=sync_group, allowed=UNKNOWN_MEMBER, **IN_GROUP),
    case(
        Api.LEAVE_GROUP,
        "the group",
        body=leave_group,
        codes=left_group,
        allowed=UNKNOWN_MEMBER,
        missing=UNKNOWN_MEMBER,
    ),
    case(
        Api.DESCRIBE_GROUPS,
        "each group",
        body=describe_group,
        codes=described_groups,
        missing={0, E.GROUP_ID_NOT_FOUND},
    ),
    case(
        Api.LIST_GROUPS,
        "each group",
        body=lambda _, __: {},
        codes=listed_groups,
    ),
    case(
        Api.DELETE_GROUPS,
        "each group",
        body=delete_groups,
        codes=in_results,
        missing={E.GROUP_ID_NOT_FOUND},
        prepare=with_new_group,
    ),
    case(
        Api.OFFSET_DELETE,
        "the group",
        body=offset_delete,
        codes=top_level,
        missing={E.GROUP_ID_NOT_FOUND},
        after=(READ_TOPIC,),
        prepare=with_new_group,
    ),
    case(
        Api.OFFSET_DELETE,
        "each topic",
        body=offset_delete,
        codes=deleted_offsets,
        missing={E.UNKNOWN_TOPIC_OR_PARTITION},
        before=(DELETE_GROUP,),
        prepare=lambda scene, subject: with_new_group(scene, subject._replace(exists=True)),
    ),
    case(
        Api.CONSUMER_GROUP_HEARTBEAT,
        "the group",
        body=heartbeat,
        codes=top_level,
        allowed=UNKNOWN_MEMBER,
        missing={E.GROUP_ID_NOT_FOUND},
        prepare=without_members,
    ),
    case(
        Api.CONSUMER_GROUP_HEARTBEAT,
        "subscribed_topic_names",
        body=subscribe,
        codes=top_level,
        allowed={E.GROUP_ID_NOT_FOUND},
        missing={E.GROUP_ID_NOT_FOUND},
        before=(READ_GROUP,),
        prepare=lambda scene, subject: subject._replace(group=scene.new_name("missing")),
    ),
    case(
        Api.CONSUMER_GROUP_HEARTBEAT,
        "subscribed_topic_regex",
        versions=since(Api.CONSUMER_GROUP_HEARTBEAT, 1),
        ask=subscribe_to_regex,
        before=(READ_GROUP,),
        prepare=with_two_topics,
    ),
    case(
        Api.CONSUMER_GROUP_DESCRIBE,
        "each group",
        body=describe_consumers,
        codes=described_consumers,
        missing={E.GROUP_ID_NOT_FOUND},
        after=(DESCRIBE_TOPIC,),
        prepare=with_consumer,
    ),
    case(
        Api.CONSUMER_GROUP_DESCRIBE,
        "topics of assignments",
        body=describe_consumers,
        codes=described_consumers,
        before=(DESCRIBE_GROUP,),
        prepare=with_consumer,
        subject=AclResourceType.TOPIC,
    ),
]
