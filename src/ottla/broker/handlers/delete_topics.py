"""DeleteTopics (key 20), versions 1–6.

Behaviours
- By name; from version 6 by name or ID. `core.controller.delete_topics` lists the error codes.
- `delete.topic.enable=false` is TOPIC_DELETION_DISABLED, or INVALID_REQUEST before version 3, whose
  clients do not know that code.
- The response is sent when the topic is gone from the metadata and its logs are closed; the files
  are deleted later.
- KIP-599's throttling is not applied.
- With an authorizer, the client needs DELETE on the cluster, which only ALL grants, or DELETE on
  each topic; without it, the topic is TOPIC_AUTHORIZATION_FAILED and the others are deleted. By
  name, a client without DESCRIBE gets that error whether the topic exists or not, and a client with
  DESCRIBE only if it exists. By ID, an unknown one is UNKNOWN_TOPIC_ID before that, and the result
  has the topic's name only with DESCRIBE. A topic that is given twice is INVALID_REQUEST first.

Deviations
- The results are in the order of the request, so their positions do not show which topics exist.
  Kafka shuffles them for that reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import ZERO_UUID
from ottla.broker.context import RequestContext
from ottla.broker.topic_views import TopicPorts, error_fields
from ottla.core.controller.delete_topics import (
    DeleteDecision,
    TopicReference,
    unknown_topic,
    unknown_topic_id,
)
from ottla.core.security.permissions import DELETE_IN_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC

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
    decisions = {}
    if context.access is not None and broker.config.delete_topic_enable:
        decisions = _denied(broker, context, references)
    allowed = [each for each in references if each not in decisions]
    if allowed:
        distinct = dict.fromkeys(allowed)
        try:
            decided = await broker.controller.delete_topics(allowed, timeout_ms=request.timeout_ms)
        except KafkaError as error:
            decided = [DeleteDecision(*each, error=error) for each in distinct]
        decisions |= zip(distinct, decided, strict=True)
    return {
        "throttle_time_ms": 0,
        "responses": [
            _result(decisions[each], context.api_version) for each in dict.fromkeys(references)
        ],
    }


def _denied(
    broker: TopicPorts, context: RequestContext, references: Sequence[TopicReference]
) -> dict[TopicReference, DeleteDecision]:
    """Return the refusals of the topics that the client may not delete."""
    if context.may(DELETE_IN_CLUSTER, is_audited=False):
        return {}
    denied: dict[TopicReference, DeleteDecision] = {}
    image, error = broker.image, KafkaError(DELETE_TOPIC.error)
    for reference, count in Counter(references).items():
        name, topic_id = reference
        if count > 1 or (name is None) == (topic_id == ZERO_UUID):
            continue  # INVALID_REQUEST
        # A topic that does not exist is not left to the controller: it may exist when it decides.
        if name is not None:
            is_visible = context.may(DESCRIBE_TOPIC, name)
            if not is_visible or not context.may(DELETE_TOPIC, name):
                is_missing = is_visible and name not in image.topics
                reason = unknown_topic(name) if is_missing else error
                denied[reference] = DeleteDecision(name, ZERO_UUID, error=reason)
        elif (topic := image.topics_by_id.get(topic_id)) is None:
            denied[reference] = DeleteDecision(None, topic_id, error=unknown_topic_id(topic_id))
        elif not context.may(DELETE_TOPIC, topic.name):
            is_visible = context.may(DESCRIBE_TOPIC, topic.name, is_audited=False)
            shown = topic.name if is_visible else None
            denied[reference] = DeleteDecision(shown, topic_id, error=error)
    return denied


def _result(decision: DeleteDecision, version: int) -> DeletableTopicResultDict:
    error = decision.error
    is_disabled = error is not None and error.code == ErrorCode.TOPIC_DELETION_DISABLED
    if is_disabled and version < _FIRST_WITH_DISABLED:
        error = KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
    return {"name": decision.name, "topic_id": decision.topic_id, **error_fields(error)}
