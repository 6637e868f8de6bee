"""DescribeTopicPartitions (key 75), version 0 (KIP-966): topics and partitions in pages.

Behaviours
- Topics are sorted by name; an empty list requests all topics. An unknown topic that was requested
  by name is UNKNOWN_TOPIC_OR_PARTITION or INVALID_TOPIC_EXCEPTION.
- A page has at most `response_partition_limit` partitions, but no more than the broker's
  `max.request.partition.size.limit` and no fewer than one. If there are more, `next_cursor` points
  to the next one.
- A cursor that points to a topic that no longer exists starts at the next topic. A negative
  partition index is INVALID_REQUEST.
- Authorized operations are always returned.
- With an authorizer, the client needs DESCRIBE on each topic. Without it, a topic that was
  requested by name is TOPIC_AUTHORIZATION_FAILED, whether it exists or not, and comes after the
  topics of the page; if all topics were requested, it is left out. Such topics do not count for the
  limit.

Deviations
- Eligible leader replicas are always empty: no replica outside the ISR is eligible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.acl import AclResourceType
from ottla.base.cluster import INTERNAL_TOPICS, TopicImage
from ottla.base.errors import ErrorCode
from ottla.base.types import ZERO_UUID
from ottla.broker.context import RequestContext
from ottla.broker.topic_views import (
    NOT_REQUESTED,
    Style,
    TopicPorts,
    described_topic,
)
from ottla.core.controller.topic_names import topic_name_error
from ottla.core.security.permissions import DESCRIBE_TOPIC

if TYPE_CHECKING:
    from ottla.wire.messages.describe_topic_partitions import (
        CursorResponseDict,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponseDict,
        DescribeTopicPartitionsResponsePartitionDict,
        DescribeTopicPartitionsResponseTopicDict,
    )
    from ottla.wire.messages.metadata import MetadataResponsePartitionDict


def handle(
    broker: TopicPorts, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponseDict:
    cursor = request.cursor
    requested = [topic.name for topic in request.topics]
    if cursor is not None and cursor.partition_index < 0:
        return _invalid_request(requested)
    first_name = "" if cursor is None else cursor.topic_name
    known = broker.image.topics
    names = [name for name in sorted(set(requested) or known) if name >= first_name]
    start = 0 if cursor is None or names[:1] != [first_name] else cursor.partition_index
    limit = broker.config.max_request_partition_size_limit
    page = _Page(broker, context, max(1, min(limit, request.response_partition_limit)))
    denied: list[DescribeTopicPartitionsResponseTopicDict] = []
    is_checked = context.access is not None
    for name in names:
        if is_checked and not _may_describe(context, name, is_listing=not requested):
            if requested:
                denied.append(_denied_topic(name))
        elif not page.add(name, start):
            break
        start = 0
    topics = [*page.topics, *denied]
    return {"throttle_time_ms": 0, "topics": topics, "next_cursor": page.next_cursor}


def _may_describe(context: RequestContext, name: str, *, is_listing: bool) -> bool:
    if is_listing:
        return bool(context.visible(DESCRIBE_TOPIC, (name,)))
    return context.may(DESCRIBE_TOPIC, name)


class _Page:
    def __init__(self, broker: TopicPorts, context: RequestContext, limit: int) -> None:
        self._broker = broker
        self._context = context
        self._remaining = limit
        self.topics: list[DescribeTopicPartitionsResponseTopicDict] = []
        self.next_cursor: CursorResponseDict | None = None

    def add(self, name: str, start: int) -> bool:
        """Add a topic from partition `start` on. Returns False when the page is full; then the
        cursor is set."""
        if self._remaining == 0:
            self.next_cursor = {"topic_name": name, "partition_index": 0}
            return False
        topic = self._broker.image.topics.get(name)
        if topic is None:
            operations = self._context.operations(AclResourceType.TOPIC, name)
            self.topics.append(_unknown_topic(name, operations))
            return True
        end = start + self._remaining
        self.topics.append(self._described(topic, start, end))
        if end < len(topic.partitions):
            self.next_cursor = {"topic_name": name, "partition_index": end}
            return False
        self._remaining -= max(0, len(topic.partitions) - start)
        return True

    def _described(
        self, topic: TopicImage, start: int, end: int
    ) -> DescribeTopicPartitionsResponseTopicDict:
        image, context = self._broker.image, self._context
        operations = context.operations(AclResourceType.TOPIC, topic.name)
        view = described_topic(image, topic, context.listener, Style.NEWEST, operations)
        return {
            "error_code": view["error_code"],
            "name": view["name"],
            "topic_id": view["topic_id"],
            "is_internal": view["is_internal"],
            "partitions": [_partition(each) for each in view["partitions"][start:end]],
            "topic_authorized_operations": view["topic_authorized_operations"],
        }


def _partition(
    view: MetadataResponsePartitionDict,
) -> DescribeTopicPartitionsResponsePartitionDict:
    return {
        "error_code": view["error_code"],
        "partition_index": view["partition_index"],
        "leader_id": view["leader_id"],
        "leader_epoch": view["leader_epoch"],
        "replica_nodes": view["replica_nodes"],
        "isr_nodes": view["isr_nodes"],
        "offline_replicas": view["offline_replicas"],
        "eligible_leader_replicas": [],
        "last_known_elr": [],
    }


def _denied_topic(name: str) -> DescribeTopicPartitionsResponseTopicDict:
    return {**_failed_topic(DESCRIBE_TOPIC.error, name, NOT_REQUESTED), "is_internal": False}


def _unknown_topic(name: str, operations: int) -> DescribeTopicPartitionsResponseTopicDict:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_error(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return _failed_topic(code, name, operations)


def _failed_topic(
    code: ErrorCode, name: str, operations: int
) -> DescribeTopicPartitionsResponseTopicDict:
    return {
        "error_code": code,
        "name": name,
        "topic_id": ZERO_UUID,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
        "topic_authorized_operations": operations,
    }


def _invalid_request(names: list[str]) -> DescribeTopicPartitionsResponseDict:
    topics = [_failed_topic(ErrorCode.INVALID_REQUEST, name, NOT_REQUESTED) for name in names]
    return {"throttle_time_ms": 0, "topics": topics, "next_cursor": None}
