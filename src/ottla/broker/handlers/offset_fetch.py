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
        delayed = DelayedResponses(_of_one_group)
        topics = _named_topics(broker, request.topics)
        event = OffsetsRequested(
            None, request.group_id, topics=topics, require_stable=require_stable
        )
        _submit(broker, delayed, event, (), version)
        return delayed.response()
    delayed = DelayedResponses(_of_groups)
    for group in request.groups:
        unknown: list[OffsetFetchResponseTopicsDict] = []
        if version >= _FIRST_WITH_TOPIC_IDS:
            topics, unknown = _identified_topics(broker, group.topics)
        else:
            topics = _named_topics(broker, group.topics)
        event = OffsetsRequested(None, group.group_id, topics=topics, require_stable=require_stable)
        if version >= _FIRST_WITH_MEMBER_EPOCH:
            event.member_id, event.member_epoch = group.member_id, group.member_epoch
        _submit(broker, delayed, event, unknown, version)
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
    delayed: DelayedResponses[OffsetFetchResponseGroupDict, OffsetFetchResponseDict],
    event: OffsetsRequested,
    unknown: Sequence[OffsetFetchResponseTopicsDict],
    version: int,
) -> None:
    """Request the offsets of one group; `unknown` are the results of unknown topic IDs."""
    group_id, topics = event.group_id, event.topics

    def on_error(code: ErrorCode) -> OffsetFetchResponseGroupDict:
        if version >= _FIRST_WITH_GROUP_ERROR:
            return {"group_id": group_id, "error_code": code, "topics": []}
        return {"topics": [_failed_topic(topic, code) for topic in topics or ()]}

    def finish(body: OffsetFetchResponseGroupDict) -> OffsetFetchResponseGroupDict:
        if body.get("error_code"):
            return on_error(ErrorCode(body["error_code"]))
        if version >= _FIRST_WITH_TOPIC_IDS and topics is None:
            return {**body, "topics": _with_ids(broker, body["topics"])}
        return {**body, "topics": [*body["topics"], *unknown]}

    event.token = ConvertedToken(delayed.add_pending(on_error), finish)
    broker.group_coordinator.submit(event)


def _named_topics(
    broker: Ports, requested: Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None
) -> list[FetchTopic] | None:
    """Return the topics to look up, or None for all."""
    if requested is None:
        return None
    known = broker.image.topics
    return [
        FetchTopic(
            each.name,
            each.partition_indexes,
            known[each.name].topic_id if each.name in known else ZERO_UUID,
        )
        for each in requested
    ]


def _identified_topics(
    broker: Ports, requested: Sequence[OffsetFetchRequestTopics] | None
) -> tuple[list[FetchTopic] | None, list[OffsetFetchResponseTopicsDict]]:
    """Return the topics to look up, or None for all, and the results of unknown topic IDs."""
    if requested is None:
        return None, []
    topics, unknown = [], []
    for each in requested:
        topic = broker.image.topics_by_id.get(each.topic_id)
        fetched = FetchTopic(
            "" if topic is None else topic.name, each.partition_indexes, each.topic_id
        )
        if topic is None:
            unknown.append(_failed_topic(fetched, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topics.append(fetched)
    return topics, unknown


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
