"""LeaveGroup (key 13), versions 0–5: members leave, or an administrator removes them.

- Up to version 2 one member, whose error is that of the response; from version 3 several, each with
  its own error (KIP-345). A static member may be named by its instance ID alone.
- `reason` (version 5, KIP-800) is logged at level DEBUG.
- With an authorizer, the client needs READ on the group, or else GROUP_AUTHORIZATION_FAILED.

Deviations: a member ID that was assigned but never used can leave without a rebalance."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import ConvertedToken, DelayedResponse
from ottla.broker.ports import GroupRequests
from ottla.core.coordinator import Token
from ottla.core.group.events import LeaveRequested, LeavingMember
from ottla.core.security.permissions import READ_GROUP

if TYPE_CHECKING:
    from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponseDict

_FIRST_WITH_MEMBERS = 3

logger = logging.getLogger(__name__)


def handle(
    broker: GroupRequests, context: RequestContext, request: LeaveGroupRequest
) -> Response[LeaveGroupResponseDict]:
    if not context.may(READ_GROUP, request.group_id):
        return _error(READ_GROUP.error)
    if not request.group_id:
        return _error(ErrorCode.INVALID_GROUP_ID)
    delayed = DelayedResponse(_error)
    token: Token[LeaveGroupResponseDict]
    if context.api_version < _FIRST_WITH_MEMBERS:
        members = [LeavingMember(request.member_id)]
        token = ConvertedToken(delayed, _of_one)
    else:
        members = [
            LeavingMember(each.member_id, each.group_instance_id) for each in request.members
        ]
        token = delayed
        for each in request.members:
            if each.reason:
                logger.debug("%s leaves %s: %.255s", each.member_id, request.group_id, each.reason)
    broker.group_coordinator.submit(LeaveRequested(token, request.group_id, members))
    return delayed.response()


def _error(code: ErrorCode) -> LeaveGroupResponseDict:
    return {"error_code": code, "members": []}


def _of_one(body: LeaveGroupResponseDict) -> LeaveGroupResponseDict:
    return {"error_code": body["members"][0]["error_code"]}
