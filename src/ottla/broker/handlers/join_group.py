"""JoinGroup (key 11), versions 0–9: a member joins a group, or takes part in its rebalance.

- The response waits until the rebalance starts a generation, or the member is removed.
- Version 0 has no rebalance timeout; the session timeout is used instead.
- From version 4 a new dynamic member first gets a member ID and MEMBER_ID_REQUIRED (KIP-394).
- From version 5 static members (KIP-345). From version 9 a static leader that returns to a stable
  group is asked to skip the assignment (KIP-814); before, the response does not name it as leader.
- `reason` (version 8, KIP-800) is logged at level DEBUG.
- With an authorizer, the client needs READ on the group, or else GROUP_AUTHORIZATION_FAILED. The
  answer is that of the time of the request, however long the response waits."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import ConvertedToken, DelayedResponse
from ottla.broker.ports import GroupSubmitter
from ottla.core.group.events import UNKNOWN_MEMBER, JoinRequested
from ottla.core.group.rebalance import join_error
from ottla.core.group.settings import GroupSettings
from ottla.core.security.permissions import READ_GROUP

if TYPE_CHECKING:
    from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponseDict

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_REQUIRED_ID = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_SKIPPED_ASSIGNMENT = 9

logger = logging.getLogger(__name__)


class Coordinator(GroupSubmitter, Protocol):
    @property
    def settings(self) -> GroupSettings: ...


class Ports(Protocol):
    """The parts of a broker that JoinGroup uses."""

    @property
    def group_coordinator(self) -> Coordinator: ...


def handle(
    broker: Ports, context: RequestContext, request: JoinGroupRequest
) -> Response[JoinGroupResponseDict]:
    version = context.api_version
    finish = _keep if version >= _FIRST_WITH_NULL_PROTOCOL else _without_nulls
    if not context.may(READ_GROUP, request.group_id):
        return finish(join_error(READ_GROUP.error, UNKNOWN_MEMBER))
    error = _validation_error(broker, request)
    if error is not None:
        return finish(join_error(error, request.member_id))
    delayed = DelayedResponse(lambda code: finish(join_error(code, request.member_id)))
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if version < _FIRST_WITH_REBALANCE_TIMEOUT:
        rebalance_timeout_ms = request.session_timeout_ms
    if request.reason:
        logger.debug("%s joins %s: %.255s", context.client_id, request.group_id, request.reason)
    broker.group_coordinator.submit(
        JoinRequested(
            ConvertedToken(delayed, finish),
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=context.client_id or "",
            client_host=f"/{context.peer}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=max(rebalance_timeout_ms, 0),
            protocol_type=request.protocol_type,
            protocols=tuple((each.name, each.metadata) for each in request.protocols),
            new_id=str(uuid.uuid4()),
            member_id_required=version >= _FIRST_WITH_REQUIRED_ID,
            can_skip_assignment=version >= _FIRST_WITH_SKIPPED_ASSIGNMENT,
        )
    )
    return delayed.response()


def _validation_error(broker: Ports, request: JoinGroupRequest) -> ErrorCode | None:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    settings = broker.group_coordinator.settings
    shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return None


def _keep(body: JoinGroupResponseDict) -> JoinGroupResponseDict:
    return body


def _without_nulls(body: JoinGroupResponseDict) -> JoinGroupResponseDict:
    return {**body, "protocol_name": body["protocol_name"] or ""}
