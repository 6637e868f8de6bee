"""ListGroups (key 16), versions 0–5: the groups that this broker coordinates.

- Types: classic, consumer. The states of consumer groups are Empty, Assigning, Reconciling, Stable.
- Filters by state (version 4, KIP-518) and by type (version 5, KIP-848). They ignore case; an empty
  filter matches all.
- While any partition of the offsets topic is loading: COORDINATOR_LOAD_IN_PROGRESS.
- With an authorizer, the client needs DESCRIBE on the cluster, or else sees only groups on which it
  has DESCRIBE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.core.coordinator import Token
from ottla.core.security.permissions import DESCRIBE_CLUSTER, DESCRIBE_GROUP

if TYPE_CHECKING:
    from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponseDict


class Coordinator(Protocol):
    def list_groups(
        self,
        states: frozenset[str],
        types: frozenset[str],
        new_token: Callable[[], Token[ListGroupsResponseDict]],
    ) -> None: ...


class Ports(Protocol):
    """The parts of a broker that ListGroups uses."""

    @property
    def group_coordinator(self) -> Coordinator: ...


def handle(
    broker: Ports, context: RequestContext, request: ListGroupsRequest
) -> Response[ListGroupsResponseDict]:
    sees_all = context.may(DESCRIBE_CLUSTER, is_audited=False)

    def finish(parts: list[ListGroupsResponseDict]) -> ListGroupsResponseDict:
        body = _merge_parts(parts)
        if sees_all:
            return body
        groups = body["groups"]
        visible = {*context.visible(DESCRIBE_GROUP, [each["group_id"] for each in groups])}
        return {**body, "groups": [each for each in groups if each["group_id"] in visible]}

    delayed = DelayedResponses(finish)
    broker.group_coordinator.list_groups(
        frozenset(state.lower() for state in request.states_filter),
        frozenset(each.lower() for each in request.types_filter),
        lambda: delayed.add_pending(_error),
    )
    return delayed.response()


def _error(code: ErrorCode) -> ListGroupsResponseDict:
    return {"error_code": code, "groups": []}


def _merge_parts(parts: list[ListGroupsResponseDict]) -> ListGroupsResponseDict:
    failed = next((part for part in parts if part.get("error_code")), None)
    return failed or {"groups": [group for part in parts for group in part["groups"]]}
