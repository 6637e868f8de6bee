"""FindCoordinator (key 10), versions 0–6: the broker that coordinates a group or transactional ID.

- The coordinator of a group (key type 0) is the leader of its partition of `__consumer_offsets`,
  that of a transactional ID (key type 1) the leader of its partition of `__transaction_state`. The
  first request creates the topic, and its response waits for that.
- Several keys at once from version 4 (KIP-699); each has its own error.
- Key type 2 (share groups) and any other: INVALID_REQUEST, like a Kafka broker without them.

Deviations: Kafka responds with COORDINATOR_NOT_AVAILABLE while the topic is being created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext, Response
from ottla.broker.internal_topic import InternalTopic
from ottla.broker.ports import Metadata
from ottla.broker.topic_views import reachable_brokers

if TYPE_CHECKING:
    from ottla.wire.messages.find_coordinator import (
        CoordinatorDict,
        FindCoordinatorRequest,
        FindCoordinatorResponseDict,
    )

GROUP = 0
TRANSACTION = 1
_FIRST_WITH_KEYS = 4


class Coordinator(Protocol):
    @property
    def topic(self) -> InternalTopic: ...


class Ports(Metadata, Protocol):
    """The parts of a broker that FindCoordinator uses."""

    @property
    def group_coordinator(self) -> Coordinator: ...

    @property
    def transaction_coordinator(self) -> Coordinator: ...


def handle(
    broker: Ports, context: RequestContext, request: FindCoordinatorRequest
) -> Response[FindCoordinatorResponseDict]:
    topic = _topic_of(broker, request.key_type)
    if topic is not None and topic.image is None:
        return _create_and_find(broker, topic, context, request)
    return _find(broker, context, request)


def _topic_of(broker: Ports, key_type: int) -> InternalTopic | None:
    if key_type == GROUP:
        return broker.group_coordinator.topic
    return broker.transaction_coordinator.topic if key_type == TRANSACTION else None


async def _create_and_find(
    broker: Ports, topic: InternalTopic, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponseDict:
    try:
        await topic.create()
    except KafkaError:
        pass  # `_node` reports COORDINATOR_NOT_AVAILABLE for each key
    return _find(broker, context, request)


def _find(
    broker: Ports, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponseDict:
    if context.api_version < _FIRST_WITH_KEYS:
        found = _coordinator(broker, context.listener, request.key_type, request.key)
        return {
            "error_code": found.get("error_code", ErrorCode.NONE),
            "error_message": found.get("error_message"),
            "node_id": found["node_id"],
            "host": found["host"],
            "port": found["port"],
        }
    return {
        "coordinators": [
            _coordinator(broker, context.listener, request.key_type, key)
            for key in request.coordinator_keys
        ]
    }


def _coordinator(broker: Ports, listener: str, key_type: int, key: str) -> CoordinatorDict:
    try:
        topic = _topic_of(broker, key_type)
        if topic is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown coordinator key type {key_type}.")
        return _node(broker, topic, listener, key)
    except KafkaError as error:
        return {
            "key": key,
            "error_code": error.code,
            "error_message": error.message,
            "node_id": -1,
            "host": "",
            "port": -1,
        }


def _node(broker: Ports, topic: InternalTopic, listener: str, key: str) -> CoordinatorDict:
    image, index = topic.image, topic.partition_for(key)
    if image is not None and index is not None:
        leader = image.partitions[index].leader
        for node in reachable_brokers(broker, listener):
            if node.id == leader:
                return {"key": key, "node_id": node.id, "host": node.host, "port": node.port}
    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
