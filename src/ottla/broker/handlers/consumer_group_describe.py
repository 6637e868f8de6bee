"""ConsumerGroupDescribe (key 69), versions 0–1: groups of the consumer protocol and their members.

- An unknown or classic group is GROUP_ID_NOT_FOUND, with a message; an empty ID INVALID_GROUP_ID.
- Version 1 has the protocol that each member uses.
- Authorized operations only on request; all of them without an authorizer.
- With an authorizer, the client needs DESCRIBE on each group, or else that group is
  GROUP_AUTHORIZATION_FAILED, and DESCRIBE on all topics of its members' assignments, or else the
  whole group is TOPIC_AUTHORIZATION_FAILED."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.broker.handlers.describe_groups import group_operations
from ottla.broker.ports import GroupSubmitter
from ottla.core.group.events import ConsumerDescribeRequested
from ottla.core.security.permissions import DESCRIBE_GROUP, DESCRIBE_TOPIC

if TYPE_CHECKING:
    from ottla.wire.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponseDict,
        DescribedGroupDict,
    )

_HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


class Coordinator(GroupSubmitter, Protocol):
    @property
    def serves_consumer_protocol(self) -> bool: ...


class Ports(Protocol):
    """The parts of a broker that ConsumerGroupDescribe uses."""

    @property
    def group_coordinator(self) -> Coordinator: ...


def handle(
    broker: Ports, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> Response[ConsumerGroupDescribeResponseDict]:
    def finish_group(group: DescribedGroupDict) -> DescribedGroupDict:
        if group.get("error_code"):
            return group
        if not _may_describe_topics(context, group):
            return {**_error(group["group_id"], DESCRIBE_TOPIC.error), "error_message": _HIDDEN}
        operations = group_operations(
            context, group["group_id"], is_requested=request.include_authorized_operations
        )
        return {**group, "authorized_operations": operations}

    def finish(groups: list[DescribedGroupDict]) -> ConsumerGroupDescribeResponseDict:
        return {"groups": [finish_group(group) for group in groups]}

    delayed = DelayedResponses(finish)
    for group_id in request.group_ids:
        if not broker.group_coordinator.serves_consumer_protocol:
            delayed.add_body(_error(group_id, ErrorCode.UNSUPPORTED_VERSION))
        elif not context.may(DESCRIBE_GROUP, group_id):
            delayed.add_body(_error(group_id, DESCRIBE_GROUP.error))
        elif not group_id:
            delayed.add_body(_error(group_id, ErrorCode.INVALID_GROUP_ID))
        else:
            token = delayed.add_pending(partial(_error, group_id))
            broker.group_coordinator.submit(ConsumerDescribeRequested(token, group_id))
    return delayed.response()


def _may_describe_topics(context: RequestContext, group: DescribedGroupDict) -> bool:
    """Return whether the client may describe all topics of the members' assignments. The audit log
    shows all denials."""
    if context.access is None:
        return True
    names = {
        topic["topic_name"]
        for member in group["members"]
        for assignment in (member["assignment"], member["target_assignment"])
        for topic in assignment["topic_partitions"]
    }
    hidden = [name for name in names if not context.may(DESCRIBE_TOPIC, name)]
    return not hidden


def _error(group_id: str, code: ErrorCode) -> DescribedGroupDict:
    return {"group_id": group_id, "error_code": code}
