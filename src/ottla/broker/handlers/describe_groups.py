"""DescribeGroups (key 15), versions 0–6: state, protocol and members of groups.

- An unknown group is Dead, from version 6 also with GROUP_ID_NOT_FOUND (KIP-1043). The same goes
  for a group of the consumer protocol; ConsumerGroupDescribe describes those.
- Member metadata is returned for stable groups only, assignments always.
- Authorized operations (KIP-430, version 3) only on request: all of them, as there is no
  authorizer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.broker.ports import GroupRequests
from ottla.broker.topic_views import requested_operations
from ottla.core.group.classic import GroupState
from ottla.core.group.events import DescribeRequested

if TYPE_CHECKING:
    from ottla.wire.messages.describe_groups import (
        DescribedGroupDict,
        DescribeGroupsRequest,
        DescribeGroupsResponseDict,
    )

_FIRST_WITH_NOT_FOUND = 6
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
"""Read, delete, describe, describe configs, alter configs. Each operation code is a bit."""


def handle(
    broker: GroupRequests, context: RequestContext, request: DescribeGroupsRequest
) -> Response[DescribeGroupsResponseDict]:
    operations = requested_operations(request.include_authorized_operations, GROUP_OPERATIONS)
    reports_not_found = context.api_version >= _FIRST_WITH_NOT_FOUND

    def finish(groups: list[DescribedGroupDict]) -> DescribeGroupsResponseDict:
        return {"groups": [_finish_group(group, operations, reports_not_found) for group in groups]}

    delayed = DelayedResponses(finish)
    for group_id in request.groups:
        token = delayed.add_pending(partial(_error, group_id))
        broker.group_coordinator.submit(DescribeRequested(token, group_id))
    return delayed.response()


def _error(group_id: str, code: ErrorCode) -> DescribedGroupDict:
    return {"group_id": group_id, "error_code": code}


def _finish_group(
    group: DescribedGroupDict, operations: int, reports_not_found: bool
) -> DescribedGroupDict:
    if group.get("error_code"):
        return group
    if group["group_state"] == GroupState.DEAD.value and reports_not_found:
        return {**group, "error_code": ErrorCode.GROUP_ID_NOT_FOUND}
    return {**group, "authorized_operations": operations, "error_message": None}
