"""Metadata (key 3), versions 0–13: brokers, topics, and the leader of each partition.

Behaviours
- All topics: a null list from version 1, an empty list in version 0. An empty list from version 1
  requests no topics.
- By ID from version 12: if any ID is given, names are ignored; an unknown ID is UNKNOWN_TOPIC_ID.
  Versions 10 and 11 have the field but cannot use it: INVALID_REQUEST, as in Kafka.
- A topic that does not exist is created if both the request (from version 4; before, always) and
  `auto.create.topics.enable` allow it, unless all topics were requested. The response includes it.
- A topic that the client may not DESCRIBE is TOPIC_AUTHORIZATION_FAILED, whether it exists or not,
  and is left out if all topics were requested. To create a missing one, the client needs CREATE on
  it or on the cluster; the controller decides by the client's principal, too.
- A topic that is not created because of the client's quota (KIP-599) is UNKNOWN_TOPIC_OR_PARTITION,
  for which clients ask again.
- Authorized operations (KIP-430) are returned only on request; those of the cluster in versions
  8–10.
- A topic that is requested twice is returned once.
- A request that arrives before the broker has joined its cluster waits until it has.
- Version 0 leaves out replicas that are not alive; LISTENER_NOT_FOUND is used from version 6.

Deviations
- `controller_id` is the actual controller; Kafka 4 returns any live broker."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.base.acl import AclResourceType
from ottla.base.cluster import TopicImage
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import ZERO_UUID
from ottla.broker.context import RequestContext, Response
from ottla.broker.forwarding import Sender
from ottla.broker.ports import Quotas
from ottla.broker.topic_views import (
    NOT_REQUESTED,
    TOPIC_OPERATIONS,
    Style,
    TopicPorts,
    authorized_cluster_operations,
    denied_topic,
    described_topic,
    described_topics,
    may_create_topic,
    reachable_brokers,
    unknown_topic,
)
from ottla.core.controller.topic_names import topic_name_error
from ottla.core.security.permissions import CREATE_TOPIC, DESCRIBE_TOPIC

if TYPE_CHECKING:
    from ottla.wire.messages.metadata import (
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponseDict,
        MetadataResponseTopicDict,
    )

_FIRST_BY_ID = 12


class Ports(TopicPorts, Quotas, Protocol):
    """The parts of a broker that this handler uses."""


def handle(
    broker: Ports, context: RequestContext, request: MetadataRequest
) -> Response[MetadataResponseDict]:
    if not broker.controller.has_begun:
        return _when_begun(broker, context, request)
    return _respond(broker, context, request)


async def _when_begun(
    broker: Ports, context: RequestContext, request: MetadataRequest
) -> MetadataResponseDict:
    await broker.controller.wait_until_begun()
    response = _respond(broker, context, request)
    return await response if isinstance(response, Coroutine) else response


def _respond(
    broker: Ports, context: RequestContext, request: MetadataRequest
) -> MetadataResponseDict | Coroutine[None, None, MetadataResponseDict]:
    response = _MetadataResponse(broker, context, request)
    topics = request.topics
    if topics is None or (context.api_version == 0 and not topics):
        return response.of(response.all_topics())
    ids = [topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID]
    if context.api_version < _FIRST_BY_ID and (ids or any(t.name is None for t in topics)):
        return response.of(_invalid_request(topics))
    if ids:
        return response.of([response.by_id(topic_id) for topic_id in dict.fromkeys(ids)])
    names = list(dict.fromkeys(topic.name or "" for topic in topics))
    if request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        missing = [
            name
            for name in names
            if name not in broker.image.topics and context.may(DESCRIBE_TOPIC, name)
        ]
        denied = dict.fromkeys(
            [name for name in missing if not may_create_topic(context, name)], CREATE_TOPIC.error
        )
        missing = [name for name in missing if name not in denied]
        if missing:
            return _create(broker, context, response, names, missing, denied)
        return response.of([response.by_name(name, denied) for name in names])
    return response.of([response.by_name(name, {}) for name in names])


async def _create(
    broker: Ports,
    context: RequestContext,
    response: _MetadataResponse,
    names: Iterable[str],
    missing: list[str],
    errors: dict[str, ErrorCode],
) -> MetadataResponseDict:
    quota = broker.quotas.mutation_quota(context.principal, context.client_id, is_strict=True)
    try:
        decisions = await broker.controller.auto_create_topics(missing, Sender.of(context), quota)
        errors |= {each.name: each.error.code for each in decisions if each.error is not None}
    except KafkaError as error:
        errors |= dict.fromkeys(missing, error.code)
    for name, code in errors.items():
        if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return response.of([response.by_name(name, errors) for name in names])


def _invalid_request(topics: Iterable[MetadataRequestTopic]) -> list[MetadataResponseTopicDict]:
    return [
        unknown_topic(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id)
        for topic in topics
    ]


class _MetadataResponse:
    def __init__(
        self, broker: TopicPorts, context: RequestContext, request: MetadataRequest
    ) -> None:
        self._broker = broker
        self._context = context
        self._listener = context.listener
        self._style = Style.of_metadata(context.api_version)
        self._has_operations = request.include_topic_authorized_operations
        self._cluster_operations = NOT_REQUESTED
        if request.include_cluster_authorized_operations:
            self._cluster_operations = authorized_cluster_operations(context)

    def all_topics(self) -> list[MetadataResponseTopicDict]:
        image, context = self._broker.image, self._context
        if context.access is not None:
            names = context.visible(DESCRIBE_TOPIC, image.topics)
            return [self._described(image.topics[name]) for name in names]
        operations = TOPIC_OPERATIONS if self._has_operations else NOT_REQUESTED
        return described_topics(image, self._listener, self._style, operations)

    def _described(self, topic: TopicImage) -> MetadataResponseTopicDict:
        operations = NOT_REQUESTED
        if self._has_operations:
            operations = self._context.operations(AclResourceType.TOPIC, topic.name)
        return described_topic(self._broker.image, topic, self._listener, self._style, operations)

    def by_id(self, topic_id: bytes) -> MetadataResponseTopicDict:
        topic = self._broker.image.topics_by_id.get(topic_id)
        if topic is None:
            return unknown_topic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        if not self._context.may(DESCRIBE_TOPIC, topic.name):
            return unknown_topic(DESCRIBE_TOPIC.error, None, topic_id)
        return self._described(topic)

    def by_name(self, name: str, errors: Mapping[str, ErrorCode]) -> MetadataResponseTopicDict:
        if not self._context.may(DESCRIBE_TOPIC, name):
            return denied_topic(name)
        topic = self._broker.image.topics.get(name)
        if topic is not None:
            return self._described(topic)
        if name in errors:
            return unknown_topic(errors[name], name)
        if topic_name_error(name) is not None:
            return unknown_topic(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
        return unknown_topic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)

    def of(self, topics: list[MetadataResponseTopicDict]) -> MetadataResponseDict:
        return {
            "throttle_time_ms": 0,
            "brokers": [
                {"node_id": id, "host": host, "port": port, "rack": rack}
                for id, host, port, rack in reachable_brokers(self._broker, self._listener)
            ],
            "cluster_id": self._broker.image.cluster_id,
            "controller_id": self._broker.image.controller_id,
            "topics": topics,
            "cluster_authorized_operations": self._cluster_operations,
            "error_code": 0,
        }
