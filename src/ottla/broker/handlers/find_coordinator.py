"""FindCoordinator (key 10), versions 0–6: which broker coordinates a group or a transactional id.

- The coordinator of a group (key type 0) is the leader of its partition of `__consumer_offsets`,
  that of a transactional id (key type 1) of its partition of `__transaction_state`. The topic is
  created by the first request for one; the answer waits for that.
- Many keys at once from version 4 (KIP-699); each has its own error.
- Key type 2, share groups, and any other: INVALID_REQUEST, as a Kafka without them answers.

Deviations: Kafka answers COORDINATOR_NOT_AVAILABLE while the topic is being created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ottla.base.cluster import TopicImage
from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.topic_views import reachable_brokers

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

API_KEY = 10
GROUP = 0
TRANSACTION = 1
_FIRST_WITH_KEYS = 4


class Coordinator(Protocol):
    """What the coordinators have in common."""

    @property
    def topic(self) -> TopicImage | None: ...

    def partition_for(self, key: str, /) -> int | None: ...

    async def create_topic(self) -> None: ...


def handle(broker: Broker, context: RequestContext, request: Any) -> Response:
    coordinator = _coordinator_of(broker, request.key_type)
    if coordinator is not None and coordinator.topic is None:
        return _create_and_find(broker, coordinator, context, request)
    return _find(broker, context, request)


def _coordinator_of(broker: Broker, key_type: int) -> Coordinator | None:
    if key_type == GROUP:
        return broker.group_coordinator
    return broker.transaction_coordinator if key_type == TRANSACTION else None


async def _create_and_find(
    broker: Broker, coordinator: Coordinator, context: RequestContext, request: Any
) -> Body:
    try:
        await coordinator.create_topic()
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
        coordinator = _coordinator_of(broker, key_type)
        if coordinator is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Key type {key_type} is not known.")
        return _node(broker, coordinator, listener, key)
    except KafkaError as error:
        return {
            "error_code": error.code,
            "error_message": error.message,
            "node_id": -1,
            "host": "",
            "port": -1,
        }


def _node(broker: Broker, coordinator: Coordinator, listener: str, key: str) -> Body:
    topic, index = coordinator.topic, coordinator.partition_for(key)
    if topic is not None and index is not None:
        leader = topic.partitions[index].leader
        for node in reachable_brokers(broker, listener):
            if node.id == leader:
                return {"node_id": node.id, "host": node.host, "port": node.port}
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
