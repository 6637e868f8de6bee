"""ConsumerGroupHeartbeat (key 68), versions 0–1: all that a member of the consumer protocol asks.

- It joins (epoch 0), goes on, or leaves (epoch -1; -2 for a static member that will be back), says
  what it subscribes to and what it owns, and is told its epoch and, if that has changed, what it is
  assigned (KIP-848).
- Subscriptions by pattern, and ids that members make themselves, from version 1.
- The coordinator loads or is elsewhere: COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR.
- Without `consumer` in `group.coordinator.rebalance.protocols`: UNSUPPORTED_VERSION.
- Errors of the request itself, with a message: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR,
  INVALID_REGULAR_EXPRESSION. Those of the group: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID,
  FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED.

Deviations
- Patterns do not match the cluster's own topics. Kafka leaves it to authorization.
- A pattern is matched at once, not by the next heartbeats.
- A static member that repeats its first request is not told UNRELEASED_INSTANCE_ID."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.parked_request import ParkedRequest
from ottla.core.group.consumer_heartbeat import check
from ottla.core.group.consumer_records import Assignment
from ottla.core.group.events import ConsumerHeartbeat

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

API_KEY = 68


def handle(broker: Broker, context: RequestContext, request: Any) -> Response:
    coordinator = broker.group_coordinator
    if not coordinator.serves_consumer_protocol:
        return _error(ErrorCode.UNSUPPORTED_VERSION)
    parked = ParkedRequest(_error)
    event = ConsumerHeartbeat(
        parked,
        request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=context.client_id or "",
        client_host=f"/{context.peer}",
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=request.subscribed_topic_names,
        pattern=request.subscribed_topic_regex if context.api_version >= 1 else None,
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        new_id=request.member_id or str(uuid.uuid4()),
    )
    try:
        check(event, context.api_version, coordinator.settings.consumer_assignors)
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message}
    coordinator.submit(event)
    return parked.response()


def _owned(topics: list[Any] | None) -> Assignment | None:
    if topics is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions}


def _error(code: ErrorCode) -> Body:
    return {"error_code": code}
