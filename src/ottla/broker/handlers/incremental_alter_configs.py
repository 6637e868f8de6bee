"""IncrementalAlterConfigs (key 44), versions 0–1 (KIP-339): changes of single configs.

Behaviours
- Operations: set (0), delete (1), append to (2) and subtract from (3) a list.
- Topics, brokers by ID, the defaults of all brokers by an empty name, groups, and this broker's
  loggers (KIP-412), whose levels last until the broker stops. A request for loggers alone is not
  forwarded to the controller.
- `core.controller.alter_configs` lists the error codes; those for loggers are in `broker.loggers`.
- `validate_only` changes nothing. The response is sent when the change is in effect.
- With an authorizer, the client needs the permissions that AlterConfigs asks for; ALTER_CONFIGS on
  the cluster for loggers, too.
- TLS settings that a broker cannot use are INVALID_REQUEST if the request is sent to that broker,
  as admin clients do.

Deviations
- Client metrics (16) have no configs yet: INVALID_REQUEST.
- Without an authorizer, CLUSTER_AUTHORIZATION_FAILED for changes of brokers and loggers by users
  who are not in `super.users`, if that is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.config.resource import ResourceType
from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker import loggers
from ottla.broker.context import RequestContext
from ottla.broker.handlers.alter_configs import (
    Ports,
    check_may_alter,
    decided,
    is_logger,
    rejections,
)
from ottla.broker.topic_views import error_fields
from ottla.core.controller.alter_configs import (
    ConfigDecision,
    ConfigRequest,
    canonical_broker_name,
)

if TYPE_CHECKING:
    from ottla.wire.messages.incremental_alter_configs import (
        AlterConfigsResourceResponseDict,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponseDict,
    )


async def handle(
    broker: Ports, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponseDict:
    requested = _requested(request)
    of_loggers = [each for each in requested if is_logger(each)]
    others = [each for each in requested if not is_logger(each)]
    decisions = [
        _alter_loggers(broker, context, each, request.validate_only) for each in of_loggers
    ]
    if others:
        decisions += await decided(broker, context, others, request.validate_only)
    return {"throttle_time_ms": 0, "responses": [_result(each) for each in decisions]}


def alters_only_loggers(request: IncrementalAlterConfigsRequest) -> bool:
    """Return whether a request alters loggers only, which the controller cannot do for a broker."""
    return all(each.resource_type == ResourceType.BROKER_LOGGER for each in request.resources)


async def rejected(
    broker: Ports, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> list[AlterConfigsResourceResponseDict]:
    """Return the results of changes of this broker's configs that it rejects itself."""
    return [_result(each) for each in await rejections(broker, context, _requested(request))]


def _requested(request: IncrementalAlterConfigsRequest) -> list[ConfigRequest]:
    return [
        ConfigRequest(
            resource.resource_type,
            resource.resource_name,
            [(each.name, each.config_operation, each.value) for each in resource.configs],
        )
        for resource in request.resources
    ]


def _result(decision: ConfigDecision) -> AlterConfigsResourceResponseDict:
    return {
        **error_fields(decision.error),
        "resource_type": decision.resource_type,
        "resource_name": decision.resource_name,
    }


def _alter_loggers(
    broker: Ports, context: RequestContext, request: ConfigRequest, validate_only: bool
) -> ConfigDecision:
    try:
        check_may_alter(broker, context, request)
        if canonical_broker_name(request.resource_name) != str(broker.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"This is broker {broker.node_id}; it cannot alter the loggers of broker "
                f"'{request.resource_name}'.",
            )
        loggers.alter_levels(request.alterations, validate_only=validate_only)
    except KafkaError as error:
        return ConfigDecision(request.resource_type, request.resource_name, error=error)
    return ConfigDecision(request.resource_type, request.resource_name)
