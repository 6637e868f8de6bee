"""DeleteGroups (key 42), versions 0–2: removal of groups without members, and of their offsets.

Each group has its own result, which may be GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP. A group that is
named twice is returned once.

With an authorizer, the client needs DELETE on each group, or else that group is
GROUP_AUTHORIZATION_FAILED."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.broker.ports import GroupRequests
from ottla.core.group.events import DeleteRequested
from ottla.core.security.permissions import DELETE_GROUP

if TYPE_CHECKING:
    from ottla.wire.messages.delete_groups import (
        DeletableGroupResultDict,
        DeleteGroupsRequest,
        DeleteGroupsResponseDict,
    )


def handle(
    broker: GroupRequests, context: RequestContext, request: DeleteGroupsRequest
) -> Response[DeleteGroupsResponseDict]:
    delayed = DelayedResponses(_response)
    for group_id in dict.fromkeys(request.groups_names):
        if not context.may(DELETE_GROUP, group_id):
            delayed.add_body(_error(group_id, DELETE_GROUP.error))
            continue
        token = delayed.add_pending(partial(_error, group_id))
        broker.group_coordinator.submit(DeleteRequested(token, group_id))
    return delayed.response()


def _response(results: list[DeletableGroupResultDict]) -> DeleteGroupsResponseDict:
    return {"results": results}


def _error(group_id: str, code: ErrorCode) -> DeletableGroupResultDict:
    return {"group_id": group_id, "error_code": code}
