"""DeleteTopics (key 20), versions 1–6.

Behaviours
- By name; from version 6 by name or ID. `core.controller.delete_topics` lists the error codes.
- `delete.topic.enable=false` is TOPIC_DELETION_DISABLED, or INVALID_REQUEST before version 3, whose
  clients do not know that code.
- The response is sent when the topic is gone from the metadata and its logs are closed; the files
  are deleted later.
- KIP-599: a client over its quota gets THROTTLING_QUOTA_EXCEEDED from version 5 on, and is only
  throttled before.

Deviations: none known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.ports import Quotas
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.delete_topics import DeleteDecision, TopicReference

if TYPE_CHECKING:
    from ottla.wire.messages.delete_topics import (
        DeletableTopicResultDict,
        DeleteTopicsRequest,
        DeleteTopicsResponseDict,
    )

_FIRST_BY_ID = 6
_FIRST_WITH_DISABLED = 3
_FIRST_WITH_QUOTA_ERROR = 5


class Ports(TopicPorts, Quotas, Protocol):
    """The parts of a broker that this handler uses."""


async def handle(
    broker: Ports, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponseDict:
    if context.api_version >= _FIRST_BY_ID:
        references = [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    else:
        references = [TopicReference(name) for name in request.topic_names]
    quota = broker.quotas.mutation_quota(
        context.principal,
        context.client_id,
        is_strict=context.api_version >= _FIRST_WITH_QUOTA_ERROR,
    )
    try:
        decisions = await broker.controller.delete_topics(
            references, timeout_ms=request.timeout_ms, quota=quota
        )
    except KafkaError as error:
        decisions = [DeleteDecision(*each, error=error) for each in dict.fromkeys(references)]
    return {
        "throttle_time_ms": 0 if quota is None else quota.throttle_time_ms,
        "responses": [_result(each, context.api_version) for each in decisions],
    }


def _result(decision: DeleteDecision, version: int) -> DeletableTopicResultDict:
    error = decision.error
    is_disabled = error is not None and error.code == ErrorCode.TOPIC_DELETION_DISABLED
    if is_disabled and version < _FIRST_WITH_DISABLED:
        error = KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
    return {"name": decision.name, "topic_id": decision.topic_id, **error_fields(error)}
