"""OffsetCommit (key 8), versions 2–10: the commit of a group's offsets.

- Topics and partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION (by ID, from version 10,
  UNKNOWN_TOPIC_ID); the others in the request are committed all the same.
- With an authorizer, the client needs READ on the group, or all partitions are
  GROUP_AUTHORIZATION_FAILED, and READ on each topic, or those of that topic are
  TOPIC_AUTHORIZATION_FAILED, whether the topic exists or not. An unknown ID is reported first.
- Versions 2–4 may have a retention time, which gives the offsets an expiry time.
- A group that does not exist: GROUP_ID_NOT_FOUND from version 9, ILLEGAL_GENERATION before.
- A member of the consumer protocol needs version 9 (else UNSUPPORTED_VERSION) and its current
  member epoch (else STALE_MEMBER_EPOCH).
- All commits that arrive together become one batch in the log, and are answered when it is
  committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import ConvertedToken, DelayedResponse
from ottla.broker.ports import GroupRequests, Metadata
from ottla.core.group.commit_request import RequestedTopic, merge_results, split_known
from ottla.core.group.events import CommitRequested
from ottla.core.group.offsets import commit_error
from ottla.core.security.permissions import READ_GROUP, READ_TOPIC

if TYPE_CHECKING:
    from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponseDict

_FIRST_WITH_MEMBER_EPOCH = 9
_FIRST_WITH_TOPIC_IDS = 10


class Ports(GroupRequests, Metadata, Protocol):
    """The parts of a broker that OffsetCommit uses."""


def handle(
    broker: Ports, context: RequestContext, request: OffsetCommitRequest
) -> Response[OffsetCommitResponseDict]:
    if not context.may(READ_GROUP, request.group_id):
        return _all_failed(request, READ_GROUP.error)
    by_id = context.api_version >= _FIRST_WITH_TOPIC_IDS
    missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics, refused = split_known(_requested(broker, context, request, by_id), missing)
    if not topics:
        return {"topics": refused}

    def finish(body: OffsetCommitResponseDict) -> OffsetCommitResponseDict:
        return {"topics": merge_results(refused, body["topics"])} if refused else body

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
    delayed = DelayedResponse(lambda code: finish(commit_error(event, code)))
    event.token = ConvertedToken(delayed, finish) if refused else delayed
    broker.group_coordinator.submit(event)
    return delayed.response()


def _requested(
    broker: Ports, context: RequestContext, request: OffsetCommitRequest, by_id: bool
) -> Iterator[RequestedTopic]:
    image = broker.image
    for topic in request.topics:
        found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        name = topic.name if found is None else found.name
        is_denied = not (by_id and found is None) and not context.may(READ_TOPIC, name)
        yield RequestedTopic(
            "" if by_id else name, topic.topic_id, found, topic.partitions, is_denied
        )


def _all_failed(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponseDict:
    return {
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {"partition_index": each.partition_index, "error_code": code}
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }
