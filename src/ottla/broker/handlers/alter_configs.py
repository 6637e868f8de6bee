"""AlterConfigs (key 33), versions 0–2: replacement of all configs of a topic, broker or group.

Behaviours
- A config that is not named loses its value; IncrementalAlterConfigs (KIP-339) avoids that.
- `core.controller.alter_configs` lists the error codes. `validate_only` changes nothing.
- The response is sent when the change is in effect.
- Loggers cannot be altered by this API: INVALID_REQUEST, as in Kafka.

Deviations: none known."""

from __future__ import annotations

from typing import Any

from ottla.base.config.resource import AlterOp
from ottla.base.errors import KafkaError
from ottla.broker.context import Body, RequestContext
from ottla.broker.topic_views import TopicsBroker, error_fields
from ottla.core.controller.alter_configs import ConfigDecision, ConfigRequest

API_KEY = 33


async def handle(broker: TopicsBroker, context: RequestContext, request: Any) -> Body:
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
    return {"throttle_time_ms": 0, "responses": [result(each) for each in decisions]}


async def decided(
    broker: TopicsBroker, requested: list[ConfigRequest], validate_only: bool
) -> list[ConfigDecision]:
    try:
        return await broker.controller.alter_configs(requested, validate_only=validate_only)
    except KafkaError as error:
        return [
            ConfigDecision(each.resource_type, each.resource_name, error=error)
            for each in requested
        ]


def result(decision: ConfigDecision) -> Body:
    return {
        **error_fields(decision.error),
        "resource_type": decision.resource_type,
        "resource_name": decision.resource_name,
    }
