"""OffsetFetch (key 9), versions 1–10: the committed offsets of groups.

- Offset -1 without an error if nothing is committed, or the group or topic is unknown.
- All topics of a group: a null list, from version 2.
- A group error is returned once per response or group from version 2; in version 1 it is returned
  for every partition.
- Several groups from version 8 (KIP-709). Topic IDs from version 10: an unknown ID is
  UNKNOWN_TOPIC_ID; an offset that was committed for an earlier topic of the same name is ignored.
- Member ID and epoch (version 9) of a member of a consumer group: UNKNOWN_MEMBER_ID,
  STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION if the member uses the classic protocol.
- `require_stable` (version 7, KIP-447): an offset that an open transaction is about to change is
  UNSTABLE_OFFSET_COMMIT.
- With an authorizer, the client needs DESCRIBE on each group, or the group is
  GROUP_AUTHORIZATION_FAILED, and DESCRIBE on each topic, or its partitions are
  TOPIC_AUTHORIZATION_FAILED, whether the topic exists or not. If all topics are requested, those
  without permission are left out.

Deviations: the response always waits until the offsets in it are committed. Kafka does so only with
`require_stable`, and otherwise returns the previous offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode
from ottla.base.types import ZERO_UUID
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import ConvertedToken, DelayedResponses
from ottla.broker.ports import GroupRequests, Metadata
from ottla.core.group.events import FetchTopic, OffsetsRequested
from ottla.core.group.offsets import no_offset
from ottla.core.security.permissions import DESCRIBE_GROUP, DESCRIBE_TOPIC

if TYPE_CHECKING:
    from ottla.wire.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
        OffsetFetchResponseDict,
        OffsetFetchResponseGroupDict,
        OffsetFetchResponseTopicsDict,
    )

_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_GROUPS = 8
_FIRST_WITH_MEMBER_EPOCH = 9
_FIRST_WITH_TOPIC_IDS = 10


class Ports(GroupRequests, Metadata, Protocol):
    """The parts of a broker that OffsetFetch uses."""


def handle(
    broker: Ports, context: RequestContext, request: OffsetFetchRequest
) -> Response[OffsetFetchResponseDict]:
    version, require_stable = context.api_version, request.require_stable
    if version < _FIRST_WITH_GROUPS:
        if not context.may(DESCRIBE_GROUP, request.group_id):
            return _of_one_group([_denied_group(version, request.group_id, request.topics)])
        delayed = DelayedResponses(_of_one_group)
        topics, refused = _named_topics(broker, context, request.topics)
        event = OffsetsRequested(
            None, request.group_id, topics=topics, require_stable=require_stable
        )
        _submit(broker, context, delayed, event, refused)
        return delayed.response()
    delayed = DelayedResponses(_of_groups)
    for group in request.groups:
        if not context.may(DESCRIBE_GROUP, group.group_id):
            delayed.add_body(_denied_group(version, group.group_id, group.topics))
            continue
        find = _identified_topics if version >= _FIRST_WITH_TOPIC_IDS else _named_topics
        topics, refused = find(broker, context, group.topics)
        event = OffsetsRequested(None, group.group_id, topics=topics, require_stable=require_stable)
        if version >= _FIRST_WITH_MEMBER_EPOCH:
            event.member_id, event.member_epoch = group.member_id, group.member_epoch
        _submit(broker, context, delayed, event, refused)
    return delayed.response()


def _of_groups(groups: list[OffsetFetchResponseGroupDict]) -> OffsetFetchResponseDict:
    return {"groups": groups}


def _of_one_group(groups: list[OffsetFetchResponseGroupDict]) -> OffsetFetchResponseDict:
    """Convert to the older response, which has no group ID and only topic names."""
    (group,) = groups
    return {
        "error_code": group.get("error_code", ErrorCode.NONE),
        "topics": [
            {"name": topic["name"], "partitions": topic["partitions"]} for topic in group["topics"]
        ],
    }


def _submit(
    broker: Ports,
    context: RequestContext,
    delayed: DelayedResponses[OffsetFetchResponseGroupDict, OffsetFetchResponseDict],
    event: OffsetsRequested,
    refused: Sequence[OffsetFetchResponseTopicsDict],
) -> None:
    """Request the offsets of one group.

    Args:
        broker: The broker.
        context: The request.
        delayed: The response.
        event: The request for the topics that exist, and that the client may see.
        refused: The results of the other topics.
    """
    group_id, topics, version = event.group_id, event.topics, context.api_version

    def on_error(code: ErrorCode) -> OffsetFetchResponseGroupDict:
        failed = [*(_failed_topic(each, code) for each in topics or ()), *refused]
        return _group_error(version, group_id, failed, code)

    def finish(body: OffsetFetchResponseGroupDict) -> OffsetFetchResponseGroupDict:
        if body.get("error_code"):
            return on_error(ErrorCode(body["error_code"]))
        if topics is None:
            found = [each for each in body["topics"] if context.may(DESCRIBE_TOPIC, each["name"])]
            by_id = version >= _FIRST_WITH_TOPIC_IDS
            return {**body, "topics": _with_ids(broker, found) if by_id else found}
        return {**body, "topics": [*body["topics"], *refused]}

    event.token = ConvertedToken(delayed.add_pending(on_error), finish)
    broker.group_coordinator.submit(event)


def _denied_group(
    version: int,
    group_id: str,
    requested: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> OffsetFetchResponseGroupDict:
    code = DESCRIBE_GROUP.error
    topics = [FetchTopic(each.name, each.partition_indexes) for each in requested or ()]
    return _group_error(version, group_id, [_failed_topic(each, code) for each in topics], code)


def _group_error(
    version: int, group_id: str, failed: list[OffsetFetchResponseTopicsDict], code: ErrorCode
) -> OffsetFetchResponseGroupDict:
    """Return the result of a group. Clients before version 2 get the error of each partition, which
    `failed` has."""
    if version >= _FIRST_WITH_GROUP_ERROR:
        return {"group_id": group_id, "error_code": code, "topics": []}
    return {"topics": failed}


def _named_topics(
    broker: Ports,
    context: RequestContext,
    requested: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
) -> tuple[list[FetchTopic] | None, list[OffsetFetchResponseTopicsDict]]:
    """Return the topics to look up, or None for all, and the results of denied ones."""
    if requested is None:
        return None, []
    known = broker.image.topics
    topics, refused = [], []
    for each in requested:
        topic_id = known[each.name].topic_id if each.name in known else ZERO_UUID
        fetched = FetchTopic(each.name, each.partition_indexes, topic_id)
        if context.may(DESCRIBE_TOPIC, each.name):
            topics.append(fetched)
        else:
            refused.append(_failed_topic(fetched, DESCRIBE_TOPIC.error))
    return topics, refused


def _identified_topics(
    broker: Ports, context: RequestContext, requested: Sequence[OffsetFetchRequestTopics] | None
) -> tuple[list[FetchTopic] | None, list[OffsetFetchResponseTopicsDict]]:
    """Return the topics to look up, or None for all, and the results of unknown topic IDs and of
    denied topics."""
    if requested is None:
        return None, []
    topics, refused = [], []
    for each in requested:
        topic = broker.image.topics_by_id.get(each.topic_id)
        fetched = FetchTopic(
            "" if topic is None else topic.name, each.partition_indexes, each.topic_id
        )
        if topic is None:
            refused.append(_failed_topic(fetched, ErrorCode.UNKNOWN_TOPIC_ID))
        elif context.may(DESCRIBE_TOPIC, topic.name):
            topics.append(fetched)
        else:
            refused.append(_failed_topic(fetched, DESCRIBE_TOPIC.error))
    return topics, refused


def _failed_topic(topic: FetchTopic, code: ErrorCode) -> OffsetFetchResponseTopicsDict:
    partitions = [no_offset(each, code) for each in topic.partitions]
    return {"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions}


def _with_ids(
    broker: Ports, topics: Sequence[OffsetFetchResponseTopicsDict]
) -> list[OffsetFetchResponseTopicsDict]:
    """Add topic IDs. Topics that no longer exist have none, and are left out."""
    known = broker.image.topics
    return [
        {**topic, "topic_id": known[topic["name"]].topic_id}
        for topic in topics
        if topic["name"] in known
    ]
