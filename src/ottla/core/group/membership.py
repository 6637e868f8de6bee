"""SyncGroup, Heartbeat and LeaveGroup in classic groups, and the timeouts of their members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.context import DecisionContext
from ottla.core.group.events import (
    UNKNOWN_MEMBER,
    AssignmentNotWritten,
    EmptyGroupNotWritten,
    HeartbeatReceived,
    LeaveRequested,
    LeavingMember,
    SessionExpired,
    SyncRequested,
    SyncTimedOut,
)
from ottla.core.group.rebalance import (
    complete_join,
    complete_join_if_all_joined,
    distribute_assignment,
    prepare,
    rebalance,
    remove_member,
    restart_session,
    sync_error,
    sync_key,
    synced,
)

if TYPE_CHECKING:
    from ottla.wire.messages.leave_group import LeaveGroupResponseDict, MemberResponseDict

# ------------------------------------------------------------------------------------------ sync


def sync(group: ClassicGroup, event: SyncRequested, context: DecisionContext) -> None:
    try:
        _sync(group, event, context)
    except KafkaError as error:
        context.decision.respond(event.token, sync_error(error.code))


def _sync(group: ClassicGroup, event: SyncRequested, context: DecisionContext) -> None:
    if group.state is GroupState.EMPTY:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.check_member(event.member_id, event.instance_id)
    if event.generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if event.protocol_type not in (None, group.protocol_type) or (
        event.protocol_name not in (None, group.protocol_name)
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_syncs.pop(member.member_id, None)
    if not group.pending_syncs:
        context.decision.cancel_timer(sync_key(group))
    if group.state is GroupState.STABLE:
        context.decision.respond(event.token, synced(group, member.assignment))
        return
    replaced, member.sync_token = member.sync_token, event.token
    context.decision.respond(replaced, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    if group.leader_id == member.member_id:
        distribute_assignment(group, event.assignments, context)
        context.decision.if_failed = AssignmentNotWritten(None, group.group_id, group.generation)


def retry_assignment(
    group: ClassicGroup, event: AssignmentNotWritten, context: DecisionContext
) -> None:
    """Rebalance again after an assignment could not be written.

    The members that waited for it have already received the error.
    """
    is_same = event.generation == group.generation
    if is_same and group.state is GroupState.COMPLETING_REBALANCE:
        prepare(group, context)


def become_empty_unwritten(
    group: ClassicGroup, event: EmptyGroupNotWritten, context: DecisionContext
) -> None:
    """Make a group Empty although its record could not be written.

    After a restart, the last generation would reappear and its members would time out.
    """
    if group.state is GroupState.PREPARING_REBALANCE and not group.members:
        group.generation = event.generation
        group.protocol_name = None
        group.subscribed_topics = frozenset() if group.uses_consumer_protocol else None
        group.move_to(GroupState.EMPTY, context.now_ms)


def expire_syncs(group: ClassicGroup, event: SyncTimedOut, context: DecisionContext) -> None:
    if event.generation != group.generation or not group.pending_syncs:
        return
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        for member_id in list(group.pending_syncs):
            remove_member(group, member_id, context)
        prepare(group, context)


# ------------------------------------------------------------------------------------ heartbeats


def heartbeat(group: ClassicGroup, event: HeartbeatReceived, context: DecisionContext) -> None:
    member = group.check_member(event.member_id, event.instance_id)
    if event.generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    restart_session(group, member, context)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def expire_session(group: ClassicGroup, event: SessionExpired, context: DecisionContext) -> None:
    member = group.members.get(event.member_id)
    if event.member_id in group.pending_joins:
        remove_member(group, event.member_id, context)
    elif member is None or member.is_known_alive:
        return
    else:
        remove_member(group, event.member_id, context)
        if group.can_rebalance:
            prepare(group, context)
            return
    if group.state is GroupState.PREPARING_REBALANCE and group.has_all_joined:
        complete_join(group, context)


# --------------------------------------------------------------------------------------- leaving


def leave(group: ClassicGroup, event: LeaveRequested, context: DecisionContext) -> None:
    size = len(group.members)
    members = [left(leaving, _leave_one(group, leaving, context)) for leaving in event.members]
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_joined(group, context)
    elif len(group.members) < size:
        rebalance(group, context)
    body: LeaveGroupResponseDict = {"members": members}
    context.decision.respond(event.token, body)


def left(leaving: LeavingMember, code: ErrorCode) -> MemberResponseDict:
    return {
        "member_id": leaving.member_id,
        "group_instance_id": leaving.instance_id,
        "error_code": code,
    }


def _leave_one(group: ClassicGroup, leaving: LeavingMember, context: DecisionContext) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == UNKNOWN_MEMBER:
        # An administrator removes a static member by its instance id alone.
        member_id = group.static_members.get(leaving.instance_id or "", UNKNOWN_MEMBER)
        if member_id == UNKNOWN_MEMBER:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id not in group.pending_joins:
        try:
            group.check_member(member_id, leaving.instance_id)
        except KafkaError as error:
            return error.code
    remove_member(group, member_id, context)
    return ErrorCode.NONE
