"""DescribeGroups (key 15), versions 0–6: state, protocol and members of groups.

- An unknown group is Dead, from version 6 also with GROUP_ID_NOT_FOUND (KIP-1043). The same goes
  for a group of the consumer protocol; ConsumerGroupDescribe describes those.
- Member metadata is returned for stable groups only, assignments always.
- Authorized operations (KIP-430, version 3) only on request; all of them without an authorizer.
- With an authorizer, the client needs DESCRIBE on each group, or else that group is
  GROUP_AUTHORIZATION_FAILED."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.base.acl import AclResourceType
from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.broker.ports import GroupRequests
from ottla.broker.topic_views import NOT_REQUESTED
from ottla.core.group.classic import GroupState
from ottla.core.group.events import DescribeRequested
from ottla.core.security.permissions import DESCRIBE_GROUP

if TYPE_CHECKING:
    from ottla.wire.messages.describe_groups import (
        DescribedGroupDict,
        DescribeGroupsRequest,
        DescribeGroupsResponseDict,
    )

_FIRST_WITH_NOT_FOUND = 6


def handle(
    broker: GroupRequests, context: RequestContext, request: DescribeGroupsRequest
) -> Response[DescribeGroupsResponseDict]:
    reports_not_found = context.api_version >= _FIRST_WITH_NOT_FOUND

    def finish_group(group: DescribedGroupDict) -> DescribedGroupDict:
        if group.get("error_code"):
            return group
        if group["group_state"] == GroupState.DEAD.value and reports_not_found:
            return {**group, "error_code": ErrorCode.GROUP_ID_NOT_FOUND}
        operations = group_operations(
            context, group["group_id"], is_requested=request.include_authorized_operations
        )
        return {**group, "authorized_operations": operations, "error_message": None}

    def finish(groups: list[DescribedGroupDict]) -> DescribeGroupsResponseDict:
        return {"groups": [finish_group(group) for group in groups]}

    delayed = DelayedResponses(finish)
    for group_id in request.groups:
        if not context.may(DESCRIBE_GROUP, group_id):
            delayed.add_body(_error(group_id, DESCRIBE_GROUP.error))
            continue
        token = delayed.add_pending(partial(_error, group_id))
        broker.group_coordinator.submit(DescribeRequested(token, group_id))
    return delayed.response()


def _error(group_id: str, code: ErrorCode) -> DescribedGroupDict:
    return {"group_id": group_id, "error_code": code}


def group_operations(context: RequestContext, group_id: str, *, is_requested: bool) -> int:
    """Return what the client may do with a group, as bits, if it has requested that."""
    return context.operations(AclResourceType.GROUP, group_id) if is_requested else NOT_REQUESTED
