"""ConsumerGroupDescribe (key 69), versions 0–1: groups of the consumer protocol and their members.

- An unknown or classic group is GROUP_ID_NOT_FOUND, with a message; an empty ID INVALID_GROUP_ID.
- Version 1 has the protocol that each member uses.
- Authorized operations only on request: all of them, as there is no authorizer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.broker.handlers.describe_groups import GROUP_OPERATIONS
from ottla.broker.ports import GroupSubmitter
from ottla.broker.topic_views import requested_operations
from ottla.core.group.events import ConsumerDescribeRequested

if TYPE_CHECKING:
    from ottla.wire.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponseDict,
        DescribedGroupDict,
    )


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
    operations = requested_operations(request.include_authorized_operations, GROUP_OPERATIONS)

    def finish(groups: list[DescribedGroupDict]) -> ConsumerGroupDescribeResponseDict:
        return {"groups": [{**group, "authorized_operations": operations} for group in groups]}

    delayed = DelayedResponses(finish)
    for group_id in request.group_ids:
        if not broker.group_coordinator.serves_consumer_protocol:
            delayed.add_body(_error(group_id, ErrorCode.UNSUPPORTED_VERSION))
        elif not group_id:
            delayed.add_body(_error(group_id, ErrorCode.INVALID_GROUP_ID))
        else:
            token = delayed.add_pending(partial(_error, group_id))
            broker.group_coordinator.submit(ConsumerDescribeRequested(token, group_id))
    return delayed.response()


def _error(group_id: str, code: ErrorCode) -> DescribedGroupDict:
    return {"group_id": group_id, "error_code": code}
