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

Deviations
- Eligible leader replicas are always empty: no replica outside the ISR is eligible."""

from __future__ import annotations

from typing import Any

from ottla.base.cluster import TopicImage
from ottla.base.errors import ErrorCode
from ottla.broker.context import Body, RequestContext
from ottla.broker.topic_views import (
    TOPIC_OPERATIONS,
    Style,
    TopicPorts,
    described_topic,
    unknown_topic,
)
from ottla.core.controller.topic_names import topic_name_error

API_KEY = 75
_NO_ELR: Body = {"eligible_leader_replicas": [], "last_known_elr": []}


def handle(broker: TopicPorts, context: RequestContext, request: Any) -> Body:
    cursor = request.cursor
    requested = [topic.name for topic in request.topics]
    if cursor is not None and cursor.partition_index < 0:
        return _invalid_request(requested)
    first_name = "" if cursor is None else cursor.topic_name
    known = broker.image.topics
    names = [name for name in sorted(set(requested) or known) if name >= first_name]
    start = 0 if cursor is None or names[:1] != [first_name] else cursor.partition_index
    limit = broker.config.max_request_partition_size_limit
    page = _Page(broker, context.listener, max(1, min(limit, request.response_partition_limit)))
    for name in names:
        if not page.add(name, start):
            break
        start = 0
    return {"throttle_time_ms": 0, "topics": page.topics, "next_cursor": page.next_cursor}


class _Page:
    def __init__(self, broker: TopicPorts, listener: str, limit: int) -> None:
        self._broker = broker
        self._listener = listener
        self._remaining = limit
        self.topics: list[Body] = []
        self.next_cursor: Body | None = None

    def add(self, name: str, start: int) -> bool:
        """Add a topic from partition `start` on. Returns False when the page is full; then the
        cursor is set."""
        if self._remaining == 0:
            self.next_cursor = {"topic_name": name, "partition_index": 0}
            return False
        topic = self._broker.image.topics.get(name)
        if topic is None:
            self.topics.append(_unknown_topic(name))
            return True
        end = start + self._remaining
        self.topics.append(self._described(topic, start, end))
        if end < len(topic.partitions):
            self.next_cursor = {"topic_name": name, "partition_index": end}
            return False
        self._remaining -= max(0, len(topic.partitions) - start)
        return True

    def _described(self, topic: TopicImage, start: int, end: int) -> Body:
        image = self._broker.image
        view = described_topic(image, topic, self._listener, Style.NEWEST, TOPIC_OPERATIONS)
        partitions = [{**each, **_NO_ELR} for each in view["partitions"][start:end]]
        return {**view, "partitions": partitions}


def _unknown_topic(name: str) -> Body:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_name_error(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return {**unknown_topic(code, name), "topic_authorized_operations": TOPIC_OPERATIONS}


def _invalid_request(names: list[str]) -> Body:
    topics = [unknown_topic(ErrorCode.INVALID_REQUEST, name) for name in names]
    return {"throttle_time_ms": 0, "topics": topics, "next_cursor": None}
