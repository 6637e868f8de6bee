"""CreateTopics (key 19), versions 2–7.

Behaviours
- Each topic succeeds or fails on its own; `core.controller.create_topics` lists the error codes. A
  name given twice is returned once, with INVALID_REQUEST.
- The response is sent when the topic can be produced to, or after the timeout with
  REQUEST_TIMED_OUT (the creation continues). A timeout of 0 or less means no limit.
- KIP-525: from version 5 the response has the counts and all configs of the topic.
- KIP-516: from version 7 it has the topic ID.
- `validate_only` returns the same without a topic ID, and creates nothing.
- KIP-599: a client over its quota gets THROTTLING_QUOTA_EXCEEDED from version 6 on, and is only
  throttled before.

Deviations
- Kafka returns a random ID for a topic that was only validated; this broker returns none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import KafkaError
from ottla.base.types import ZERO_UUID
from ottla.broker.context import RequestContext
from ottla.broker.described_configs import created_topic_configs
from ottla.broker.ports import Quotas
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.create_topics import NewTopic, TopicDecision

if TYPE_CHECKING:
    from ottla.wire.messages.create_topics import (
        CreatableTopic,
        CreatableTopicResultDict,
        CreateTopicsRequest,
        CreateTopicsResponseDict,
    )


_FIRST_WITH_QUOTA_ERROR = 6


class Ports(TopicPorts, Quotas, Protocol):
    """The parts of a broker that this handler uses."""


async def handle(
    broker: Ports, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponseDict:
    requested = [_new_topic(topic) for topic in request.topics]
    quota = broker.quotas.mutation_quota(
        context.principal,
        context.client_id,
        is_strict=context.api_version >= _FIRST_WITH_QUOTA_ERROR,
    )
    try:
        decisions = await broker.controller.create_topics(
            requested,
            validate_only=request.validate_only,
            timeout_ms=request.timeout_ms,
            quota=quota,
        )
    except KafkaError as error:
        names = dict.fromkeys(topic.name for topic in requested)
        decisions = [TopicDecision(name, error=error) for name in names]
    return {
        "throttle_time_ms": 0 if quota is None else quota.throttle_time_ms,
        "topics": [_result(broker, each, request.validate_only) for each in decisions],
    }


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs=[(each.name, each.value) for each in topic.configs],
    )


def _result(
    broker: TopicPorts, decision: TopicDecision, validate_only: bool
) -> CreatableTopicResultDict:
    error = error_fields(decision.error)
    result: CreatableTopicResultDict = {
        "name": decision.name,
        "configs": [],
        "error_code": error["error_code"],
        "error_message": error["error_message"],
    }
    topic = decision.topic
    if decision.error is None and topic is not None:
        result["topic_id"] = ZERO_UUID if validate_only else topic.topic_id
        result["num_partitions"] = len(topic.partitions)
        result["replication_factor"] = topic.replication_factor
        result["configs"] = created_topic_configs(broker, topic.configs)
    return result
