"""Heartbeat (key 12), versions 0–4: a member's liveness, and news of a rebalance.

While the coordinator is loading, the response is success: the member can only wait.

With an authorizer, the client needs READ on the group, or else GROUP_AUTHORIZATION_FAILED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.ports import GroupRequests
from ottla.core.group.events import HeartbeatReceived
from ottla.core.security.permissions import READ_GROUP

if TYPE_CHECKING:
    from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponseDict


def handle(
    broker: GroupRequests, context: RequestContext, request: HeartbeatRequest
) -> Response[HeartbeatResponseDict]:
    if not context.may(READ_GROUP, request.group_id):
        return _error(READ_GROUP.error)
    if not request.group_id:
        return _error(ErrorCode.INVALID_GROUP_ID)
    delayed = DelayedResponse(_error)
    broker.group_coordinator.submit(
        HeartbeatReceived(
            delayed,
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
        )
    )
    return delayed.response()


def _error(code: ErrorCode) -> HeartbeatResponseDict:
    is_loading = code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return {"error_code": ErrorCode.NONE if is_loading else code}
