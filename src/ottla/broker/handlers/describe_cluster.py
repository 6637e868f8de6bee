"""DescribeCluster (key 60), versions 0–2.

Behaviours
- KIP-700; the cluster's authorized operations are returned only on request. With an authorizer,
  the client needs DESCRIBE on the cluster to see its own there; without it, the field is 0. The
  brokers are returned to every client.
- KIP-919: from version 1 the client requests brokers (1) or controllers (2). A broker only answers
  for brokers: 2 is MISMATCHED_ENDPOINT_TYPE, anything else UNSUPPORTED_ENDPOINT_TYPE.
- From version 2 fenced brokers are included on request: registered brokers that are not alive,
  including those whose lease has expired but whose ZooKeeper session has not.

Deviations
- `controller_id` is the actual controller; Kafka 4 returns any live broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext
from ottla.broker.topic_views import (
    NOT_REQUESTED,
    TopicPorts,
    authorized_cluster_operations,
    reachable_brokers,
)

if TYPE_CHECKING:
    from ottla.wire.messages.describe_cluster import (
        DescribeClusterBrokerDict,
        DescribeClusterRequest,
        DescribeClusterResponseDict,
    )

_BROKERS = 1
_CONTROLLERS = 2


async def handle(
    broker: TopicPorts, context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponseDict:
    await broker.controller.wait_until_begun()
    if request.endpoint_type != _BROKERS:
        return _endpoint_type_error(request.endpoint_type)
    brokers: list[DescribeClusterBrokerDict] = [
        {"broker_id": id, "host": host, "port": port, "rack": rack, "is_fenced": False}
        for id, host, port, rack in reachable_brokers(broker, context.listener)
    ]
    if request.include_fenced_brokers:
        brokers += _fenced(broker, context.listener)
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "endpoint_type": _BROKERS,
        "cluster_id": broker.image.cluster_id or "",
        "controller_id": broker.image.controller_id,
        "brokers": brokers,
        "cluster_authorized_operations": (
            authorized_cluster_operations(context)
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED
        ),
    }


def _fenced(broker: TopicPorts, listener: str) -> list[DescribeClusterBrokerDict]:
    found: list[DescribeClusterBrokerDict] = []
    for each in sorted(broker.image.brokers.values(), key=lambda each: each.id):
        is_fenced = each.fenced or each.id in broker.image.presumed_dead
        if is_fenced and listener in each.endpoints:
            host, port = each.endpoints[listener]
            found.append(
                {
                    "broker_id": each.id,
                    "host": host,
                    "port": port,
                    "rack": each.rack,
                    "is_fenced": True,
                }
            )
    return found


def _endpoint_type_error(endpoint_type: int) -> DescribeClusterResponseDict:
    if endpoint_type == _CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "This is a broker endpoint, but the request requires a controller endpoint."
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unknown endpoint type {endpoint_type}."
    return {
        "error_code": code,
        "error_message": message,
        "endpoint_type": _BROKERS,
        "cluster_id": "",
        "brokers": [],
        "cluster_authorized_operations": NOT_REQUESTED,
    }
