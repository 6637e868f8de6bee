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

from collections.abc import Callable
from typing import Any, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import ZERO_UUID
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.broker.ports import GroupRequests, Metadata
from ottla.core.group.events import FetchTopic, OffsetsRequested
from ottla.core.group.offsets import no_offset

API_KEY = 9
_FIRST_WITH_GROUP_ERROR = 2
_FIRST_WITH_GROUPS = 8
_FIRST_WITH_MEMBER_EPOCH = 9
_FIRST_WITH_TOPIC_IDS = 10


class Ports(GroupRequests, Metadata, Protocol):
    """The parts of a broker that OffsetFetch uses."""


def handle(broker: Ports, context: RequestContext, request: Any) -> Response:
    version = context.api_version
    if version >= _FIRST_WITH_GROUPS:
        delayed = DelayedResponses(lambda groups: {"groups": groups})
        for group in request.groups:
            _request_offsets(broker, delayed, group, request.require_stable, version)
    else:
        delayed = DelayedResponses(_of_one_group)
        _request_offsets(broker, delayed, request, request.require_stable, version)
    return delayed.response()


def _of_one_group(groups: list[Body]) -> Body:
    """Convert to the older response, which has no group ID and only topic names."""
    (group,) = groups
    return {
        "error_code": group.get("error_code", ErrorCode.NONE),
        "topics": [
            {"name": topic["name"], "partitions": topic["partitions"]} for topic in group["topics"]
        ],
    }


def _request_offsets(
    broker: Ports, delayed: DelayedResponses, group: Any, require_stable: bool, version: int
) -> None:
    by_id = version >= _FIRST_WITH_TOPIC_IDS
    topics, unknown = _topics(broker, group.topics, by_id)

    def on_error(code: ErrorCode) -> Body:
        if version >= _FIRST_WITH_GROUP_ERROR:
            return {"group_id": group.group_id, "error_code": code, "topics": []}
        return {"topics": [_failed_topic(topic, code) for topic in topics or ()]}

    def finish(body: Body) -> Body:
        if by_id and topics is None and not body.get("error_code"):
            return {**body, "topics": _with_ids(broker, body["topics"])}
        if body.get("error_code"):
            return on_error(body["error_code"])
        return {**body, "topics": [*body["topics"], *unknown]}

    token = _OffsetFetchToken(delayed.add_pending(on_error), finish)
    broker.group_coordinator.submit(
        OffsetsRequested(
            token,
            group.group_id,
            topics=topics,
            require_stable=require_stable,
            member_id=group.member_id if version >= _FIRST_WITH_MEMBER_EPOCH else None,
            member_epoch=group.member_epoch if version >= _FIRST_WITH_MEMBER_EPOCH else -1,
        )
    )


def _topics(
    broker: Ports, requested: list[Any] | None, by_id: bool
) -> tuple[list[FetchTopic] | None, list[Body]]:
    """Return the topics to look up, and the results of unknown topic IDs."""
    if requested is None:
        return None, []
    if not by_id:
        by_name = broker.image.topics
        return [
            FetchTopic(
                each.name,
                each.partition_indexes,
                by_name[each.name].topic_id if each.name in by_name else ZERO_UUID,
            )
            for each in requested
        ], []
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


def _failed_topic(topic: FetchTopic, code: ErrorCode) -> Body:
    partitions = [no_offset(each, code) for each in topic.partitions]
    return {"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions}


def _with_ids(broker: Ports, topics: list[Body]) -> list[Body]:
    """Add topic IDs. Topics that no longer exist have none, and are left out."""
    known = broker.image.topics
    return [
        {**topic, "topic_id": known[topic["name"]].topic_id}
        for topic in topics
        if topic["name"] in known
    ]


class _OffsetFetchToken:
    """A token that converts the coordinator's reply and passes it on."""

    __slots__ = ("_finish", "_token")

    def __init__(self, token: Any, finish: Callable[[Body], Body]) -> None:
        self._token = token
        self._finish = finish

    def fail(self, error: KafkaError) -> None:
        self._token.fail(error)

    def reply(self, body: Body) -> None:
        self._token.reply(self._finish(body))
