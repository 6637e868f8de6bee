"""FindCoordinator (key 10), versions 0–6: which broker coordinates a group.

- The coordinator of a group is the leader of its partition of `__consumer_offsets`. The topic is
  created by the first request for a group; the answer waits for that.
- Many keys at once from version 4 (KIP-699); each has its own error.
- Key type 1, transactions: TRANSACTIONAL_ID_AUTHORIZATION_FAILED. This broker has no transactions
  yet, and that is the one error at which librdkafka, Java and the Python clients all give up at
  once instead of asking again until they time out.
- Key type 2, share groups, and any other: INVALID_REQUEST, as a Kafka without them answers.

Deviations: Kafka answers COORDINATOR_NOT_AVAILABLE while the topic is being created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.topic_views import reachable_brokers

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

API_KEY = 10
GROUP = 0
TRANSACTION = 1
_FIRST_WITH_KEYS = 4
_NO_TRANSACTIONS = KafkaError(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "This broker has no transactions."
)


def handle(broker: Broker, context: RequestContext, request: Any) -> Response:
    if request.key_type == GROUP and broker.group_coordinator.topic is None:
        return _create_and_find(broker, context, request)
    return _find(broker, context, request)


async def _create_and_find(broker: Broker, context: RequestContext, request: Any) -> Body:
    try:
        await broker.group_coordinator.create_topic()
    except KafkaError:
        pass  # the keys are answered that there is no coordinator
    return _find(broker, context, request)


def _find(broker: Broker, context: RequestContext, request: Any) -> Body:
    if context.api_version < _FIRST_WITH_KEYS:
        return _coordinator(broker, context.listener, request.key_type, request.key)
    return {
        "coordinators": [
            {"key": key, **_coordinator(broker, context.listener, request.key_type, key)}
            for key in request.coordinator_keys
        ]
    }


def _coordinator(broker: Broker, listener: str, key_type: int, key: str) -> Body:
    try:
        if key_type == TRANSACTION:
            raise _NO_TRANSACTIONS
        if key_type != GROUP:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Key type {key_type} is not known.")
        return _group_coordinator(broker, listener, key)
    except KafkaError as error:
        return {
            "error_code": error.code,
            "error_message": error.message,
            "node_id": -1,
            "host": "",
            "port": -1,
        }


def _group_coordinator(broker: Broker, listener: str, group_id: str) -> Body:
    coordinator = broker.group_coordinator
    topic, index = coordinator.topic, coordinator.partition_for(group_id)
    if topic is not None and index is not None:
        leader = topic.partitions[index].leader
        for node in reachable_brokers(broker, listener):
            if node.id == leader:
                return {"node_id": node.id, "host": node.host, "port": node.port}
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
