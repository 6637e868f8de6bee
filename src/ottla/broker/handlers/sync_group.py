"""SyncGroup (key 14), versions 0–5: the leader sends the assignments, each member gets its own.

- The response waits until the leader's assignments have been written to the log.
- Members that the leader left out get an empty assignment.
- From version 5 the protocol is checked: INCONSISTENT_GROUP_PROTOCOL (KIP-559)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.ports import GroupRequests
from ottla.core.group.events import SyncRequested
from ottla.core.group.rebalance import sync_error

if TYPE_CHECKING:
    from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponseDict


def handle(
    broker: GroupRequests, context: RequestContext, request: SyncGroupRequest
) -> Response[SyncGroupResponseDict]:
    if not request.group_id:
        return sync_error(ErrorCode.INVALID_GROUP_ID)
    delayed = DelayedResponse(sync_error)
    broker.group_coordinator.submit(
        SyncRequested(
            delayed,
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={each.member_id: each.assignment for each in request.assignments},
        )
    )
    return delayed.response()
