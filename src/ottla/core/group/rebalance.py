"""Rebalances of classic groups: collecting joins, starting generations, distributing assignments.

    prepare ──► (members join) ──► complete_join ──► (leader syncs) ──► distribute_assignment
       ▲             │ join timer       │ sync timer
       └─────────────┴──────────────────┘ a member is lost or changes

A group has two timers: `join` ends the wait for JoinGroups, `sync` the wait for SyncGroups. Each
member has a `session` timer. The first rebalance of an empty group waits for
`group.initial.rebalance.delay.ms`, and for as long again whenever more members have joined, up to
the rebalance timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.core.coordinator import Token
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.context import DecisionContext
from ottla.core.group.events import (
    EmptyGroupNotWritten,
    InitialDelayEnded,
    JoinTimedOut,
    SessionExpired,
    SyncTimedOut,
)
from ottla.core.group.member import ClassicMember
from ottla.core.group.records import GroupMetadata, GroupRecord

if TYPE_CHECKING:
    from ottla.wire.messages.join_group import JoinGroupResponseDict, JoinGroupResponseMemberDict
    from ottla.wire.messages.sync_group import SyncGroupResponseDict

# ---------------------------------------------------------------------------------- response bodies


def join_error(code: ErrorCode, member_id: str) -> JoinGroupResponseDict:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


def joined(group: ClassicGroup, member_id: str) -> JoinGroupResponseDict:
    """Return the JoinGroup response. Only the leader receives the list of members."""
    return {
        "generation_id": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "leader": group.leader_id or "",
        "member_id": member_id,
        "members": described_members(group) if group.leader_id == member_id else [],
    }


def described_members(group: ClassicGroup) -> list[JoinGroupResponseMemberDict]:
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "metadata": member.metadata_for(group.protocol_name),
        }
        for member in group.members.values()
    ]


def sync_error(code: ErrorCode) -> SyncGroupResponseDict:
    return {"error_code": code, "protocol_type": None, "protocol_name": None, "assignment": b""}


def synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponseDict:
    return {
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "assignment": assignment,
    }


# ---------------------------------------------------------------------------------------- timers


def session_key(group: ClassicGroup, member_id: str) -> tuple[str, ...]:
    return ("session", group.group_id, member_id)


def join_key(group: ClassicGroup) -> tuple[str, ...]:
    return ("join", group.group_id)


def sync_key(group: ClassicGroup) -> tuple[str, ...]:
    return ("sync", group.group_id)


def restart_session(
    group: ClassicGroup,
    member: ClassicMember,
    context: DecisionContext,
    timeout_ms: int | None = None,
) -> None:
    context.decision.start_timer(
        session_key(group, member.member_id),
        member.session_timeout_ms if timeout_ms is None else timeout_ms,
        SessionExpired(None, group.group_id, member.member_id),
    )


# --------------------------------------------------------------------------------------- members


def remove_member(group: ClassicGroup, member_id: str, context: DecisionContext) -> None:
    """Remove a member, and answer its delayed requests with UNKNOWN_MEMBER_ID.

    If its client is alive, it joins again.
    """
    context.decision.cancel_timer(session_key(group, member_id))
    member = group.members.get(member_id)
    if member is not None:
        code = ErrorCode.UNKNOWN_MEMBER_ID
        context.decision.respond(group.pop_join(member), join_error(code, ""))
        context.decision.respond(group.pop_sync(member), sync_error(code))
    group.remove(member_id)


def delay_join(
    group: ClassicGroup,
    member: ClassicMember,
    token: Token[JoinGroupResponseDict] | None,
    context: DecisionContext,
) -> None:
    """Delay a JoinGroup. It replaces a delayed one, which the client no longer waits for."""
    replaced = group.delay_join(member, token)
    code = ErrorCode.REBALANCE_IN_PROGRESS
    context.decision.respond(replaced, join_error(code, member.member_id))


# -------------------------------------------------------------------------------------- rebalancing


def rebalance(group: ClassicGroup, context: DecisionContext) -> None:
    """React to a member that joined, left or changed."""
    if group.can_rebalance:
        prepare(group, context)
    else:
        complete_join_if_all_joined(group, context)


def prepare(group: ClassicGroup, context: DecisionContext) -> None:
    if group.state is GroupState.COMPLETING_REBALANCE:
        _reject_syncs(group, context)
    group.pending_syncs.clear()
    context.decision.cancel_timer(sync_key(group))
    is_initial = group.state is GroupState.EMPTY
    group.move_to(GroupState.PREPARING_REBALANCE, context.now_ms)
    if is_initial:
        delay_ms = context.settings.initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.new_member_added = False
        _extend_initial_delay(group, delay_ms, remaining_ms, context)
    elif group.has_all_joined:
        complete_join(group, context)
    else:
        _wait_for_joins(group, context)


def _reject_syncs(group: ClassicGroup, context: DecisionContext) -> None:
    """Ask members to rejoin that wait for an assignment which will not come."""
    for member in group.members.values():
        token = group.pop_sync(member)
        if token is not None:
            context.decision.respond(token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
            restart_session(group, member, context)


def _extend_initial_delay(
    group: ClassicGroup, delay_ms: int, remaining_ms: int, context: DecisionContext
) -> None:
    event = InitialDelayEnded(None, group.group_id, delay_ms, remaining_ms)
    context.decision.start_timer(join_key(group), delay_ms, event)


def _wait_for_joins(group: ClassicGroup, context: DecisionContext) -> None:
    event = JoinTimedOut(None, group.group_id)
    context.decision.start_timer(join_key(group), group.rebalance_timeout_ms, event)


def end_initial_delay(
    group: ClassicGroup, event: InitialDelayEnded, context: DecisionContext
) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.new_member_added and event.remaining_ms:
        group.new_member_added = False
        delay_ms = min(context.settings.initial_rebalance_delay_ms, event.remaining_ms)
        _extend_initial_delay(group, delay_ms, max(event.remaining_ms - event.delay_ms, 0), context)
    else:
        complete_join(group, context)


def complete_join_if_all_joined(group: ClassicGroup, context: DecisionContext) -> None:
    """Complete the join phase if all members have joined and the initial delay is over."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.has_all_joined
    ):
        complete_join(group, context)


def complete_join(group: ClassicGroup, context: DecisionContext) -> None:
    """Start the next generation with the members that have joined.

    Static members stay even if they have not joined, until their session expires.
    """
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    context.decision.cancel_timer(join_key(group))
    absent = [each for each in group.members.values() if each.join_token is None]
    for member in absent:
        if not member.is_static:
            remove_member(group, member.member_id, context)
    if not group.members:
        _become_empty(group, context)
    elif group.elect_joined_leader():
        _begin_generation(group, context)
    else:
        _wait_for_joins(group, context)


def _become_empty(group: ClassicGroup, context: DecisionContext) -> None:
    value = GroupMetadata(
        group.protocol_type or "", group.generation + 1, None, None, context.now_ms, ()
    )
    context.decision.records.append(GroupRecord(group.group_id, value))
    context.decision.if_failed = EmptyGroupNotWritten(None, group.group_id, value.generation)


def _begin_generation(group: ClassicGroup, context: DecisionContext) -> None:
    group.begin_generation(context.now_ms)
    for member in group.members.values():
        context.decision.respond(group.pop_join(member), joined(group, member.member_id))
        restart_session(group, member, context)
        member.is_new = False
        group.pending_syncs[member.member_id] = None
    context.decision.start_timer(
        sync_key(group),
        group.rebalance_timeout_ms,
        SyncTimedOut(None, group.group_id, group.generation),
    )


def distribute_assignment(
    group: ClassicGroup, assignments: dict[str, bytes], context: DecisionContext
) -> None:
    """Write the leader's assignment, and send it to the members that wait for it.

    The group becomes Stable when the record is applied. Members that the leader left out have an
    empty assignment.
    """
    value = group.metadata(context.now_ms, assignments)
    context.decision.records.append(GroupRecord(group.group_id, value))
    for member in group.members.values():
        token = group.pop_sync(member)
        if token is not None:
            assignment = assignments.get(member.member_id, b"")
            context.decision.respond(token, synced(group, assignment))
            restart_session(group, member, context)
