"""ListConfigResources (key 74), versions 0–1: the resources that have configs, by type.

Behaviours
- Version 0 (KIP-714) lists client metrics only. From version 1 (KIP-1142) the request names the
  types; an empty list requests all of them, and an unknown type is UNSUPPORTED_VERSION.
- With an authorizer, the client needs DESCRIBE_CONFIGS on the cluster; without it, the response is
  CLUSTER_AUTHORIZATION_FAILED.

Deviations
- There are no client metrics yet, so their list is empty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.base.config.resource import ResourceType
from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext
from ottla.broker.ports import Metadata
from ottla.core.security.permissions import DESCRIBE_CLUSTER_CONFIGS

if TYPE_CHECKING:
    from ottla.wire.messages.list_config_resources import (
        ListConfigResourcesRequest,
        ListConfigResourcesResponseDict,
    )

_KINDS = [kind for kind in ResourceType if kind is not ResourceType.UNKNOWN]


def handle(
    broker: Metadata, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponseDict:
    if not context.may(DESCRIBE_CLUSTER_CONFIGS):
        return {"error_code": DESCRIBE_CLUSTER_CONFIGS.error, "config_resources": []}
    kinds: list[int] = [ResourceType.CLIENT_METRICS]
    if context.api_version > 0:
        kinds = list(dict.fromkeys(request.resource_types)) or list(_KINDS)
    if not set(kinds) <= set(_KINDS):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": []}
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in kinds
            for name in _names(broker, kind)
        ],
    }


def _names(broker: Metadata, kind: int) -> Iterable[str]:
    if kind == ResourceType.TOPIC:
        return broker.image.topics
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(each.id) for each in broker.image.live_brokers]
    if kind == ResourceType.GROUP:
        return [name for name, configs in broker.image.group_configs.items() if configs]
    return ()
