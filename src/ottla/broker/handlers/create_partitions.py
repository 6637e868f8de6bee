"""CreatePartitions (key 37), versions 0–3: more partitions for existing topics.

Behaviours
- `count` is the new total. The controller places the replicas unless the request lists them.
- `core.controller.create_partitions` lists the error codes. `validate_only` changes nothing.
- KIP-599: a client over its quota gets THROTTLING_QUOTA_EXCEEDED from version 3 on, and is only
  throttled before.
- The response is sent when the new partitions can be produced to, or after the timeout.
- With an authorizer, the client needs ALTER on each topic; without it, the topic is
  TOPIC_AUTHORIZATION_FAILED, whether it exists or not. A topic that is given twice is
  INVALID_REQUEST before that.

Deviations: none known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.ports import Quotas
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.create_partitions import PartitionIncrease, PartitionsDecision
from ottla.core.security.permissions import ALTER_TOPIC

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
    denied = _denied(context, [topic.name for topic in request.topics])
    requested = [_more_partitions(topic) for topic in request.topics if topic.name not in denied]
    quota = broker.quotas.mutation_quota(
        context.principal,
        context.client_id,
        is_strict=context.api_version >= _FIRST_WITH_QUOTA_ERROR,
    )
    decisions: list[PartitionsDecision] = []
    if requested:
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
    errors = denied | {each.name: each.error for each in decisions}
    return {
        "throttle_time_ms": 0 if quota is None else quota.throttle_time_ms,
        "results": [
            {"name": name, **error_fields(errors[name])}
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ],
    }


def _denied(context: RequestContext, names: Iterable[str]) -> dict[str, KafkaError | None]:
    """Return the errors of the topics that the client may not alter."""
    if context.access is None:
        return {}
    return {
        name: KafkaError(ALTER_TOPIC.error)
        for name, count in Counter(names).items()
        if count == 1 and not context.may(ALTER_TOPIC, name)
    }


def _more_partitions(topic: CreatePartitionsTopic) -> PartitionIncrease:
    assignments = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    return PartitionIncrease(topic.name, topic.count, assignments)
