"""ElectLeaders (key 43), versions 0–2: election of the preferred replica, or of any live one.

Behaviours
- Version 0 only has preferred elections. Without a list of partitions, all are considered, and
  those that need no election are left out of the response.
- `core.controller.elect_leaders` lists the error codes.
- The response is sent when this broker, the controller, has applied the elections.
- With an authorizer, the client needs ALTER on the cluster: CLUSTER_AUTHORIZATION_FAILED.
- An error of the whole request is at the top level, from version 1, and at every partition.

Deviations: none known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.cluster import ElectionType
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.security.permissions import ALTER_CLUSTER

if TYPE_CHECKING:
    from ottla.wire.messages.elect_leaders import (
        ElectLeadersRequest,
        ElectLeadersResponseDict,
        PartitionResultDict,
    )

_FIRST_WITH_TYPE = 1


async def handle(
    broker: TopicPorts, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponseDict:
    keys = None
    if request.topic_partitions is not None:
        keys = [
            TopicPartition(topic.topic, index)
            for topic in request.topic_partitions
            for index in topic.partitions
        ]
    try:
        context.check(ALTER_CLUSTER)
        kind = _election_type(context, request)
        decisions = await broker.controller.elect_leaders(kind, keys, timeout_ms=request.timeout_ms)
    except KafkaError as error:
        return _failed(request, error)
    topics: dict[str, list[PartitionResultDict]] = {}
    for each in decisions:
        result: PartitionResultDict = {
            "partition_id": each.partition.partition,
            **error_fields(each.error),
        }
        topics.setdefault(each.partition.topic, []).append(result)
    return {
        "error_code": ErrorCode.NONE,
        "replica_election_results": [
            {"topic": name, "partition_result": results} for name, results in topics.items()
        ],
    }


def _failed(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponseDict:
    return {
        "error_code": error.code,
        "replica_election_results": [
            {
                "topic": topic.topic,
                "partition_result": [
                    {"partition_id": index, **error_fields(error)} for index in topic.partitions
                ],
            }
            for topic in request.topic_partitions or ()
        ],
    }


def _election_type(context: RequestContext, request: ElectLeadersRequest) -> ElectionType:
    if context.api_version < _FIRST_WITH_TYPE:
        return ElectionType.PREFERRED
    try:
        return ElectionType(request.election_type)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}."
        ) from None
