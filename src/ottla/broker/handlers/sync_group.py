"""SyncGroup (key 14), versions 0–5: the leader sends the assignments, each member gets its own.

- The response waits until the leader's assignments have been written to the log.
- Members that the leader left out get an empty assignment.
- From version 5 the protocol is checked: INCONSISTENT_GROUP_PROTOCOL (KIP-559). A request
  without it is refused first of all.
- With an authorizer, the client needs READ on the group, or else GROUP_AUTHORIZATION_FAILED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.ports import GroupRequests
from ottla.core.group.events import SyncRequested
from ottla.core.group.rebalance import sync_error
from ottla.core.security.permissions import READ_GROUP

if TYPE_CHECKING:
    from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponseDict

_FIRST_WITH_PROTOCOL = 5


def handle(
    broker: GroupRequests, context: RequestContext, request: SyncGroupRequest
) -> Response[SyncGroupResponseDict]:
    if context.api_version >= _FIRST_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.may(READ_GROUP, request.group_id):
        return sync_error(READ_GROUP.error)
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
