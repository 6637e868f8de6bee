"""DeleteGroups (key 42), versions 0–2: removal of groups without members, and of their offsets.

Each group has its own result, which may be GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP. A group that is
named twice is returned once."""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.broker.ports import GroupRequests
from ottla.core.group.events import DeleteRequested

API_KEY = 42


def handle(broker: GroupRequests, context: RequestContext, request: Any) -> Response:
    delayed = DelayedResponses(lambda results: {"results": results})
    for group_id in dict.fromkeys(request.groups_names):
        token = delayed.add_pending(lambda code, id=group_id: _error(id, code))  # type: ignore[misc]
        broker.group_coordinator.submit(DeleteRequested(token, group_id))
    return delayed.response()


def _error(group_id: str, code: ErrorCode) -> Body:
    return {"group_id": group_id, "error_code": code}
