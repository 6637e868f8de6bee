"""DescribeClientQuotas (key 48), versions 0–1 (KIP-546): the client quotas that a filter matches.

- Each component of the filter names an entity type, with one name, the default or any name. With
  `strict`, entities must have no other parts. No components match every entity.
- INVALID_REQUEST for a malformed filter, UNSUPPORTED_VERSION for an unknown entity type.
- Any broker answers, from its own image. The client needs DESCRIBE_CONFIGS on the cluster.

Deviation: an exact match with an empty name is the default, because no entity has an empty name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.ports import Metadata
from ottla.core.controller.quotas import FilterComponent, find_quotas
from ottla.core.security.permissions import DESCRIBE_CLUSTER_CONFIGS

if TYPE_CHECKING:
    from ottla.wire.messages.describe_client_quotas import (
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponseDict,
    )


def handle(
    broker: Metadata, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponseDict:
    components = [
        FilterComponent(each.entity_type, each.match_type, each.match)
        for each in request.components
    ]
    try:
        context.check(DESCRIBE_CLUSTER_CONFIGS)
        found = find_quotas(broker.image.quotas, components, strict=request.strict)
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message, "entries": None}
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "entries": [
            {
                "entity": [
                    {"entity_type": kind, "entity_name": name or None}
                    for kind, name in entity.parts.items()
                ],
                "values": [{"key": key.value, "value": value} for key, value in values.items()],
            }
            for entity, values in found
        ],
    }
