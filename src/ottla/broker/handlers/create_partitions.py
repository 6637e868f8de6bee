"""CreatePartitions (key 37), versions 0–3: more partitions for existing topics.

Behaviours
- `count` is the new total. The controller places the replicas unless the request lists them.
- `core.controller.create_partitions` lists the error codes. `validate_only` changes nothing.
- KIP-599: a client over its quota gets THROTTLING_QUOTA_EXCEEDED from version 3 on, and is only
  throttled before.
- The response is sent when the new partitions can be produced to, or after the timeout.

Deviations: none known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.ports import Quotas
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.create_partitions import PartitionIncrease, PartitionsDecision

if TYPE_CHECKING:
    from ottla.wire.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponseDict,
        CreatePartitionsTopic,
    )


_FIRST_WITH_QUOTA_ERROR = 3


class Ports(TopicPorts, Quotas, Protocol):
    """The parts of a broker that this handler uses."""


async def handle(
    broker: Ports, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponseDict:
    requested = [_more_partitions(topic) for topic in request.topics]
    quota = broker.quotas.mutation_quota(
        context.principal,
        context.client_id,
        is_strict=context.api_version >= _FIRST_WITH_QUOTA_ERROR,
    )
    try:
        decisions = await broker.controller.create_partitions(
            requested,
            validate_only=request.validate_only,
            timeout_ms=request.timeout_ms,
            quota=quota,
        )
    except KafkaError as error:
        names = dict.fromkeys(each.name for each in requested)
        decisions = [PartitionsDecision(name, error=error) for name in names]
    return {
        "throttle_time_ms": 0 if quota is None else quota.throttle_time_ms,
        "results": [{"name": each.name, **error_fields(each.error)} for each in decisions],
    }


def _more_partitions(topic: CreatePartitionsTopic) -> PartitionIncrease:
    assignments = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    return PartitionIncrease(topic.name, topic.count, assignments)
