"""OffsetDelete (key 47), version 0 (KIP-496): removal of a group's committed offsets.

- Topics that the group's consumers are subscribed to: GROUP_SUBSCRIBED_TO_TOPIC.
- A group with members that are not consumers: NON_EMPTY_GROUP.
- Topics and partitions that do not exist: UNKNOWN_TOPIC_OR_PARTITION.
- With an authorizer, the client needs DELETE on the group, or else GROUP_AUTHORIZATION_FAILED, and
  READ on each topic, or its partitions are TOPIC_AUTHORIZATION_FAILED, whether it exists or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import ConvertedToken, DelayedResponse
from ottla.broker.ports import GroupRequests, Metadata
from ottla.core.group.events import OffsetDeleteRequested, OffsetsOfTopic
from ottla.core.security.permissions import DELETE_GROUP, READ_TOPIC

if TYPE_CHECKING:
    from ottla.wire.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponseDict,
        OffsetDeleteResponsePartitionDict,
        OffsetDeleteResponseTopicDict,
    )


class Ports(GroupRequests, Metadata, Protocol):
    """The parts of a broker that OffsetDelete uses."""


def handle(
    broker: Ports, context: RequestContext, request: OffsetDeleteRequest
) -> Response[OffsetDeleteResponseDict]:
    if not context.may(DELETE_GROUP, request.group_id):
        return _error(DELETE_GROUP.error)
    if not request.group_id:
        return _error(ErrorCode.INVALID_GROUP_ID)
    topics: list[OffsetsOfTopic] = []
    unknown: dict[str, list[int]] = {}
    denied: list[OffsetDeleteResponseTopicDict] = []
    for requested in request.topics:
        if not context.may(READ_TOPIC, requested.name):
            denied.append(_denied(requested))
            continue
        topic = broker.image.topics.get(requested.name)
        count = 0 if topic is None else len(topic.partitions)
        indexes = [each.partition_index for each in requested.partitions]
        known = [index for index in indexes if 0 <= index < count]
        topics.append(OffsetsOfTopic(requested.name, known))
        unknown[requested.name] = [index for index in indexes if index not in known]

    def finish(body: OffsetDeleteResponseDict) -> OffsetDeleteResponseDict:
        if body["error_code"] != ErrorCode.NONE:
            return body
        deleted = [_with_unknown(each, unknown) for each in body["topics"]]
        return {**body, "topics": [*deleted, *denied]}

    delayed = DelayedResponse(_error)
    token = ConvertedToken(delayed, finish)
    broker.group_coordinator.submit(OffsetDeleteRequested(token, request.group_id, topics))
    return delayed.response()


def _with_unknown(
    topic: OffsetDeleteResponseTopicDict, unknown: dict[str, list[int]]
) -> OffsetDeleteResponseTopicDict:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused: list[OffsetDeleteResponsePartitionDict] = [
        {"partition_index": index, "error_code": code} for index in unknown[topic["name"]]
    ]
    return {"name": topic["name"], "partitions": [*topic["partitions"], *refused]}


def _denied(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopicDict:
    refused: list[OffsetDeleteResponsePartitionDict] = [
        {"partition_index": each.partition_index, "error_code": READ_TOPIC.error}
        for each in topic.partitions
    ]
    return {"name": topic.name, "partitions": refused}


def _error(code: ErrorCode) -> OffsetDeleteResponseDict:
    return {"error_code": code, "topics": []}
