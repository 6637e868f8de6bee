"""AlterConfigs (key 33), versions 0–2: replacement of all configs of a topic, broker or group.

Behaviours
- A config that is not named loses its value; IncrementalAlterConfigs (KIP-339) avoids that.
- `core.controller.alter_configs` lists the error codes. `validate_only` changes nothing.
- The response is sent when the change is in effect.
- Loggers cannot be altered by this API: INVALID_REQUEST, as in Kafka.

Deviations: none known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.config.resource import AlterOp
from ottla.base.errors import KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.alter_configs import ConfigDecision, ConfigRequest

if TYPE_CHECKING:
    from ottla.wire.messages.alter_configs import (
        AlterConfigsRequest,
        AlterConfigsResourceResponseDict,
        AlterConfigsResponseDict,
    )


async def handle(
    broker: TopicPorts, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponseDict:
    requested = [
        ConfigRequest(
            resource.resource_type,
            resource.resource_name,
            [(config.name, AlterOp.SET, config.value) for config in resource.configs],
            replace_all=True,
        )
        for resource in request.resources
    ]
    decisions = await decided(broker, requested, request.validate_only)
    return {"throttle_time_ms": 0, "responses": [_result(each) for each in decisions]}


async def decided(
    broker: TopicPorts, requested: list[ConfigRequest], validate_only: bool
) -> list[ConfigDecision]:
    try:
        return await broker.controller.alter_configs(requested, validate_only=validate_only)
    except KafkaError as error:
        return [
            ConfigDecision(each.resource_type, each.resource_name, error=error)
            for each in requested
        ]


def _result(decision: ConfigDecision) -> AlterConfigsResourceResponseDict:
    return {
        **error_fields(decision.error),
        "resource_type": decision.resource_type,
        "resource_name": decision.resource_name,
    }
