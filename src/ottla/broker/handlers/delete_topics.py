"""DeleteTopics (key 20), versions 1–6.

Behaviours
- By name; from version 6 by name or ID. `core.controller.delete_topics` lists the error codes.
- `delete.topic.enable=false` is TOPIC_DELETION_DISABLED, or INVALID_REQUEST before version 3, whose
  clients do not know that code.
- The response is sent when the topic is gone from the metadata and its logs are closed; the files
  are deleted later.
- KIP-599's throttling is not applied.

Deviations: none known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
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


async def handle(
    broker: TopicPorts, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponseDict:
    if context.api_version >= _FIRST_BY_ID:
        references = [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    else:
        references = [TopicReference(name) for name in request.topic_names]
    try:
        decisions = await broker.controller.delete_topics(references, timeout_ms=request.timeout_ms)
    except KafkaError as error:
        decisions = [DeleteDecision(*each, error=error) for each in dict.fromkeys(references)]
    return {
        "throttle_time_ms": 0,
        "responses": [_result(each, context.api_version) for each in decisions],
    }


def _result(decision: DeleteDecision, version: int) -> DeletableTopicResultDict:
    error = decision.error
    is_disabled = error is not None and error.code == ErrorCode.TOPIC_DELETION_DISABLED
    if is_disabled and version < _FIRST_WITH_DISABLED:
        error = KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
    return {"name": decision.name, "topic_id": decision.topic_id, **error_fields(error)}
