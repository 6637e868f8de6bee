"""AlterPartitionReassignments (key 45), versions 0–1: moves of replicas to other brokers.

Behaviours
- Each partition has its own result; `core.controller.reassignment` lists the error codes. A
  partition without replicas cancels its reassignment in progress.
- The response is sent when the reassignment has begun; ListPartitionReassignments shows when it is
  complete.
- Version 1 can forbid changes of the replication factor (KIP-860).
- With an authorizer, the client needs ALTER on the cluster: CLUSTER_AUTHORIZATION_FAILED.
- An error of the whole request is at the top level and at every partition.

Deviations: none known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.reassignment import ReassignmentRequest
from ottla.core.security.permissions import ALTER_CLUSTER

if TYPE_CHECKING:
    from ottla.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponseDict,
        ReassignablePartitionResponseDict,
    )

_FIRST_WITH_FACTOR = 1


async def handle(
    broker: TopicPorts, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponseDict:
    may_change = context.api_version < _FIRST_WITH_FACTOR or request.allow_replication_factor_change
    requested = [
        ReassignmentRequest(TopicPartition(topic.name, each.partition_index), each.replicas)
        for topic in request.topics
        for each in topic.partitions
    ]
    try:
        context.check(ALTER_CLUSTER)
        decisions = await broker.controller.alter_reassignments(
            requested, may_change_factor=may_change, timeout_ms=request.timeout_ms
        )
    except KafkaError as error:
        return {
            "allow_replication_factor_change": may_change,
            "error_code": error.code,
            "error_message": error.message,
            "responses": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": each.partition_index, **error_fields(error)}
                        for each in topic.partitions
                    ],
                }
                for topic in request.topics
            ],
        }
    topics: dict[str, list[ReassignablePartitionResponseDict]] = {}
    for decision in decisions:
        result: ReassignablePartitionResponseDict = {
            "partition_index": decision.partition.partition,
            **error_fields(decision.error),
        }
        topics.setdefault(decision.partition.topic, []).append(result)
    return {
        "allow_replication_factor_change": may_change,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "responses": [{"name": name, "partitions": result} for name, result in topics.items()],
    }
