"""AlterConfigs (key 33), versions 0–2: replacement of all configs of a topic, broker or group.

Behaviours
- A config that is not named loses its value; IncrementalAlterConfigs (KIP-339) avoids that.
- `core.controller.alter_configs` lists the error codes. `validate_only` changes nothing.
- The response is sent when the change is in effect.
- Loggers cannot be altered by this API: INVALID_REQUEST for every client, as in Kafka.
- With an authorizer, the client needs ALTER_CONFIGS: on the topic (without it the resource is
  TOPIC_AUTHORIZATION_FAILED, whether it exists or not), on the group (GROUP_AUTHORIZATION_FAILED),
  or on the cluster for brokers and client metrics (CLUSTER_AUTHORIZATION_FAILED). The other
  resources of the request are altered. A resource that is given twice is INVALID_REQUEST first.
- TLS settings that a broker cannot use are INVALID_REQUEST if the request is sent to that broker,
  as admin clients do.

Deviations
- Without an authorizer, CLUSTER_AUTHORIZATION_FAILED for changes of brokers by users who are not in
  `super.users`, if that is set."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from ottla.base.config.resource import AlterOp, ResourceType
from ottla.base.errors import KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.peers import check_manages_brokers
from ottla.broker.ports import PeerRecognition
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.alter_configs import ConfigDecision, ConfigRequest
from ottla.core.security.permissions import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
)

if TYPE_CHECKING:
    from ottla.wire.messages.alter_configs import (
        AlterConfigsRequest,
        AlterConfigsResourceResponseDict,
        AlterConfigsResponseDict,
    )


_OF_BROKERS = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


class Ports(TopicPorts, PeerRecognition, Protocol):
    """The parts of a broker that the handlers for changes of configs use."""


async def handle(
    broker: Ports, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponseDict:
    decisions = await decided(broker, context, _requested(request), request.validate_only)
    return {"throttle_time_ms": 0, "responses": [_result(each) for each in decisions]}


async def rejected(
    broker: Ports, context: RequestContext, request: AlterConfigsRequest
) -> list[AlterConfigsResourceResponseDict]:
    """Return the results of changes of this broker's configs that it rejects itself."""
    return [_result(each) for each in await rejections(broker, context, _requested(request))]


async def rejections(
    broker: Ports, context: RequestContext, requested: list[ConfigRequest]
) -> list[ConfigDecision]:
    """Return the rejections of changes of this broker's configs that need no controller."""
    own = [
        each
        for each in requested
        if each.resource_type == ResourceType.BROKER and each.resource_name == str(broker.node_id)
    ]
    if len(own) > 1:
        return []  # the controller rejects a resource that is given twice
    refused, allowed = _partitioned(broker, context, own)
    unusable = await broker.controller.unusable_configs(allowed) if allowed else []
    return refused + unusable


def _requested(request: AlterConfigsRequest) -> list[ConfigRequest]:
    return [
        ConfigRequest(
            resource.resource_type,
            resource.resource_name,
            [(config.name, AlterOp.SET, config.value) for config in resource.configs],
            replace_all=True,
        )
        for resource in request.resources
    ]


async def decided(
    broker: Ports, context: RequestContext, requested: list[ConfigRequest], validate_only: bool
) -> list[ConfigDecision]:
    refused, allowed = _partitioned(broker, context, requested)
    if not allowed:
        return refused
    try:
        decisions = await broker.controller.alter_configs(allowed, validate_only=validate_only)
    except KafkaError as error:
        decisions = [_failed(each, error) for each in allowed]
    return refused + decisions


def _partitioned(
    broker: Ports, context: RequestContext, requested: list[ConfigRequest]
) -> tuple[list[ConfigDecision], list[ConfigRequest]]:
    """Return the decisions on changes that the client may not make, and the other changes."""
    refused: list[ConfigDecision] = []
    allowed: list[ConfigRequest] = []
    counts = Counter((each.resource_type, each.resource_name) for each in requested)
    for each in requested:
        try:
            if counts[each.resource_type, each.resource_name] == 1 and not is_logger(each):
                check_may_alter(broker, context, each)
        except KafkaError as error:
            refused.append(_failed(each, error))
        else:
            allowed.append(each)
    return refused, allowed


def is_logger(request: ConfigRequest) -> bool:
    return request.resource_type == ResourceType.BROKER_LOGGER


def check_may_alter(broker: Ports, context: RequestContext, request: ConfigRequest) -> None:
    """Check that a client may alter the configs of a resource.

    Raises:
        KafkaError: The error code of the missing permission.
    """
    if request.resource_type in _OF_BROKERS:
        check_manages_brokers(broker, context, ALTER_CLUSTER_CONFIGS)
    elif request.resource_type == ResourceType.CLIENT_METRICS:
        context.check(ALTER_CLUSTER_CONFIGS)
    elif request.resource_type == ResourceType.TOPIC:
        context.check(ALTER_TOPIC_CONFIGS, request.resource_name)
    elif request.resource_type == ResourceType.GROUP:
        context.check(ALTER_GROUP_CONFIGS, request.resource_name)


def _failed(request: ConfigRequest, error: KafkaError) -> ConfigDecision:
    return ConfigDecision(request.resource_type, request.resource_name, error=error)


def _result(decision: ConfigDecision) -> AlterConfigsResourceResponseDict:
    return {
        **error_fields(decision.error),
        "resource_type": decision.resource_type,
        "resource_name": decision.resource_name,
    }
