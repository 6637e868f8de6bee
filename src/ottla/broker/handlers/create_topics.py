"""CreateTopics (key 19), versions 2–7.

Behaviours
- Each topic succeeds or fails on its own; `core.controller.create_topics` lists the error codes. A
  name given twice is returned once, with INVALID_REQUEST.
- The response is sent when the topic can be produced to, or after the timeout with
  REQUEST_TIMED_OUT (the creation continues). A timeout of 0 or less means no limit.
- KIP-525: from version 5 the response has the counts and all configs of the topic.
- KIP-516: from version 7 it has the topic ID.
- `validate_only` returns the same without a topic ID, and creates nothing.
- With an authorizer, the client needs CREATE on the cluster or on each topic; without it, the topic
  is TOPIC_AUTHORIZATION_FAILED and the others are created. A topic that is given twice, and
  `__cluster_metadata`, are INVALID_REQUEST before that.
- Without DESCRIBE_CONFIGS on a topic, the client gets neither its counts nor its configs:
  `topic_config_error_code` is TOPIC_AUTHORIZATION_FAILED, and the topic is created all the same.
- KIP-599: a client over its quota gets THROTTLING_QUOTA_EXCEEDED from version 6 on, and is only
  throttled before.

Deviations
- A broker that needs an internal topic must only have CLUSTER_ACTION. Kafka asks it for CREATE.
- Kafka returns a random ID for a topic that was only validated; this broker returns none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ottla.base.cluster import INTERNAL_TOPICS, METADATA_TOPIC
from ottla.base.errors import KafkaError
from ottla.base.types import ZERO_UUID
from ottla.broker.context import RequestContext
from ottla.broker.described_configs import created_topic_configs
from ottla.broker.ports import Quotas
from ottla.broker.topic_views import TopicPorts, error_fields, may_create_topic
from ottla.core.controller.create_topics import NewTopic, TopicDecision
from ottla.core.security.permissions import CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS

if TYPE_CHECKING:
    from ottla.wire.messages.create_topics import (
        CreatableTopic,
        CreatableTopicResultDict,
        CreateTopicsRequest,
        CreateTopicsResponseDict,
    )


_FIRST_WITH_CONFIGS = 5
_FIRST_WITH_QUOTA_ERROR = 6


class Ports(TopicPorts, Quotas, Protocol):
    """The parts of a broker that this handler uses."""


async def handle(
    broker: Ports, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponseDict:
    denied = _denied(context, [topic.name for topic in request.topics])
    requested = [_new_topic(topic) for topic in request.topics if topic.name not in denied]
    quota = broker.quotas.mutation_quota(
        context.principal,
        context.client_id,
        is_strict=context.api_version >= _FIRST_WITH_QUOTA_ERROR,
    )
    decisions: list[TopicDecision] = []
    if requested:
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
    by_name = denied | {each.name: each for each in decisions}
    return {
        "throttle_time_ms": 0 if quota is None else quota.throttle_time_ms,
        "topics": [
            _result(broker, context, by_name[name], request.validate_only)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ],
    }


def _denied(context: RequestContext, names: Iterable[str]) -> dict[str, TopicDecision]:
    """Return the refusals of the topics that the client may not create."""
    if context.access is None:
        return {}
    error = KafkaError(CREATE_TOPIC.error)
    return {
        name: TopicDecision(name, error=error)
        for name, count in Counter(names).items()
        if count == 1 and name != METADATA_TOPIC and not _may_create(context, name)
    }


def _may_create(context: RequestContext, name: str) -> bool:
    access = context.access
    if name in INTERNAL_TOPICS and access is not None and access.acts_as_broker():
        return True
    return may_create_topic(context, name)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs=[(each.name, each.value) for each in topic.configs],
    )


def _result(
    broker: TopicPorts, context: RequestContext, decision: TopicDecision, validate_only: bool
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
        if context.api_version < _FIRST_WITH_CONFIGS:
            return result
        if not context.may(DESCRIBE_TOPIC_CONFIGS, topic.name, is_audited=False):
            result["topic_config_error_code"] = DESCRIBE_TOPIC_CONFIGS.error
            return result
        result["num_partitions"] = len(topic.partitions)
        result["replication_factor"] = topic.replication_factor
        result["configs"] = created_topic_configs(broker, topic.configs)
    return result
