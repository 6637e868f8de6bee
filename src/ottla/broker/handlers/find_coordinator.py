"""FindCoordinator (key 10), versions 0–6: the broker that coordinates a group or transactional ID.

- The coordinator of a group (key type 0) is the leader of its partition of `__consumer_offsets`,
  that of a transactional ID (key type 1) the leader of its partition of `__transaction_state`. The
  first request creates the topic, and its response waits for that.
- Several keys at once from version 4 (KIP-699); each has its own error.
- Key type 2 (share groups) and any other: INVALID_REQUEST, like a Kafka broker without them.
- With an authorizer, the client needs DESCRIBE on each group or transactional ID, or the key is
  GROUP_AUTHORIZATION_FAILED or TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Key type 2 needs
  CLUSTER_ACTION on the cluster from version 6, or all keys are CLUSTER_AUTHORIZATION_FAILED. The
  topic of the coordinator is created only for keys that are allowed.

Deviations: Kafka responds with COORDINATOR_NOT_AVAILABLE while the topic is being created."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext, Response
from ottla.broker.internal_topic import InternalTopic
from ottla.broker.ports import Metadata
from ottla.broker.topic_views import reachable_brokers
from ottla.core.security.permissions import (
    ACT_AS_BROKER,
    DESCRIBE_GROUP,
    DESCRIBE_TRANSACTIONAL_ID,
    Permission,
)

if TYPE_CHECKING:
    from ottla.wire.messages.find_coordinator import (
        CoordinatorDict,
        FindCoordinatorRequest,
        FindCoordinatorResponseDict,
    )

GROUP = 0
TRANSACTION = 1
SHARE = 2
_FIRST_WITH_KEYS = 4
_FIRST_WITH_SHARE = 6

_NEEDED: Mapping[int, Permission] = {
    GROUP: DESCRIBE_GROUP,
    TRANSACTION: DESCRIBE_TRANSACTIONAL_ID,
    SHARE: ACT_AS_BROKER,
}
"""Permission that a client needs for each type of keys."""


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
    keys = (request.key,) if context.api_version < _FIRST_WITH_KEYS else request.coordinator_keys
    denied = _denied(context, request.key_type, keys)
    topic = _topic_of(broker, request.key_type)
    if topic is not None and topic.image is None and not denied.issuperset(keys):
        return _create_and_find(broker, topic, context, request, denied)
    return _find(broker, context, request, denied)


def _denied(context: RequestContext, key_type: int, keys: Collection[str]) -> frozenset[str]:
    """Return the keys whose coordinator the client may not know."""
    permission = _NEEDED.get(key_type)
    if context.access is None or permission is None:
        return frozenset()
    if key_type == SHARE:
        is_served = context.api_version >= _FIRST_WITH_SHARE
        return frozenset(keys if is_served and not context.may(permission) else ())
    return frozenset(key for key in dict.fromkeys(keys) if not context.may(permission, key))


def _topic_of(broker: Ports, key_type: int) -> InternalTopic | None:
    if key_type == GROUP:
        return broker.group_coordinator.topic
    return broker.transaction_coordinator.topic if key_type == TRANSACTION else None


async def _create_and_find(
    broker: Ports,
    topic: InternalTopic,
    context: RequestContext,
    request: FindCoordinatorRequest,
    denied: Collection[str],
) -> FindCoordinatorResponseDict:
    try:
        await topic.create()
    except KafkaError:
        pass  # `_node` reports COORDINATOR_NOT_AVAILABLE for each key
    return _find(broker, context, request, denied)


def _find(
    broker: Ports,
    context: RequestContext,
    request: FindCoordinatorRequest,
    denied: Collection[str],
) -> FindCoordinatorResponseDict:
    if context.api_version < _FIRST_WITH_KEYS:
        found = _coordinator(broker, context.listener, request.key_type, request.key, denied)
        return {
            "error_code": found.get("error_code", ErrorCode.NONE),
            "error_message": found.get("error_message"),
            "node_id": found["node_id"],
            "host": found["host"],
            "port": found["port"],
        }
    return {
        "coordinators": [
            _coordinator(broker, context.listener, request.key_type, key, denied)
            for key in request.coordinator_keys
        ]
    }


def _coordinator(
    broker: Ports, listener: str, key_type: int, key: str, denied: Collection[str]
) -> CoordinatorDict:
    try:
        if key in denied:
            raise KafkaError(_NEEDED[key_type].error)
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
