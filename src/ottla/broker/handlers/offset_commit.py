"""OffsetCommit (key 8), versions 2–10: the commit of a group's offsets.

- Topics and partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION (by ID, from version 10,
  UNKNOWN_TOPIC_ID); the others in the request are committed all the same.
- Versions 2–4 may have a retention time, which gives the offsets an expiry time.
- A group that does not exist: GROUP_ID_NOT_FOUND from version 9, ILLEGAL_GENERATION before.
- A member of the consumer protocol needs version 9 (else UNSUPPORTED_VERSION) and its current
  member epoch (else STALE_MEMBER_EPOCH).
- All commits that arrive together become one batch in the log, and are answered when it is
  committed."""

from __future__ import annotations

from typing import Any, Protocol

from ottla.base.cluster import TopicImage
from ottla.base.errors import ErrorCode
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.ports import GroupRequests, Metadata
from ottla.core.group.events import CommitPartition, CommitRequested, CommitTopic
from ottla.core.group.offsets import commit_error

API_KEY = 8
_FIRST_WITH_MEMBER_EPOCH = 9
_FIRST_WITH_TOPIC_IDS = 10


class Ports(GroupRequests, Metadata, Protocol):
    """The parts of a broker that OffsetCommit uses."""


def handle(broker: Ports, context: RequestContext, request: Any) -> Response:
    topics, refused = _split_known(broker, request, context.api_version >= _FIRST_WITH_TOPIC_IDS)
    if not topics:
        return {"topics": refused}

    def finish(body: Body) -> Body:
        return {"topics": _merge(refused, body["topics"])} if refused else body

    event = CommitRequested(
        None,
        request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
        retention_ms=request.retention_time_ms,
        topics=topics,
        knows_group_not_found=context.api_version >= _FIRST_WITH_MEMBER_EPOCH,
        knows_member_epochs=context.api_version >= _FIRST_WITH_MEMBER_EPOCH,
    )
    delayed = DelayedResponse(lambda code: finish(commit_error(event, code)), finish)
    event.token = delayed
    broker.group_coordinator.submit(event)
    return delayed.response()


def _split_known(broker: Ports, request: Any, by_id: bool) -> tuple[list[CommitTopic], list[Body]]:
    """Return the topics to commit, and the results of those that do not exist."""
    image = broker.image
    topics: list[CommitTopic] = []
    refused: list[Body] = []
    for requested in request.topics:
        if by_id:
            topic = image.topics_by_id.get(requested.topic_id)
            code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = image.topics.get(requested.name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            name = "" if by_id else requested.name
            refused.append(_failed_topic(name, requested.topic_id, requested.partitions, code))
            continue
        count = len(topic.partitions)
        known = [
            CommitPartition(
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata,
            )
            for each in requested.partitions
            if 0 <= each.partition_index < count
        ]
        if len(known) < len(requested.partitions):
            refused.append(_unknown_partitions(topic, requested.partitions))
        if known:
            topics.append(CommitTopic(topic.name, topic.topic_id, known))
    return topics, refused


def _unknown_partitions(topic: TopicImage, partitions: list[Any]) -> Body:
    count = len(topic.partitions)
    unknown = [each for each in partitions if not 0 <= each.partition_index < count]
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _failed_topic(topic.name, topic.topic_id, unknown, code)


def _failed_topic(name: str, topic_id: bytes, partitions: list[Any], code: ErrorCode) -> Body:
    results = [{"partition_index": each.partition_index, "error_code": code} for each in partitions]
    return {"name": name, "topic_id": topic_id, "partitions": results}


def _merge(refused: list[Body], committed: list[Body]) -> list[Body]:
    """Merge the results so that each topic occurs once, as clients expect."""
    merged: dict[tuple[str, bytes], Body] = {}
    for topic in (*refused, *committed):
        key = (topic["name"], topic["topic_id"])
        known = merged.get(key)
        if known is None:
            merged[key] = topic
        else:
            merged[key] = {**known, "partitions": [*known["partitions"], *topic["partitions"]]}
    return list(merged.values())
