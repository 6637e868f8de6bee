"""Rebalances of classic groups: collecting joins, starting generations, distributing assignments.

    prepare ──► (members join) ──► complete_join ──► (leader syncs) ──► hand_out
       ▲             │ join timer       │ sync timer
       └─────────────┴──────────────────┘ a member is lost or changes

A group has two timers: `join` ends the wait for JoinGroups, `sync` the wait for SyncGroups. Each
member has a `session` timer. The first rebalance of an empty group waits for
`group.initial.rebalance.delay.ms`, and for as long again whenever more members have joined, up to
the rebalance timeout.
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode
from ottla.core.coordinator import Body, Token
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.events import (
    EmptyGroupNotWritten,
    InitialDelayEnded,
    JoinTimedOut,
    SessionExpired,
    SyncTimedOut,
)
from ottla.core.group.member import Member
from ottla.core.group.records import GroupMetadata, GroupRecord
from ottla.core.group.turn import Turn

# ---------------------------------------------------------------------------------- response bodies


def join_error(code: ErrorCode, member_id: str) -> Body:
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


def joined(group: ClassicGroup, member_id: str) -> Body:
    """Return the JoinGroup response. Only the leader receives the list of members."""
    return {
        "generation_id": group.generation,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "leader": group.leader_id or "",
        "member_id": member_id,
        "members": described_members(group) if group.leader_id == member_id else [],
    }


def described_members(group: ClassicGroup) -> list[Body]:
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "metadata": member.metadata_for(group.protocol_name),
        }
        for member in group.members.values()
    ]


def sync_error(code: ErrorCode) -> Body:
    return {"error_code": code, "protocol_type": None, "protocol_name": None, "assignment": b""}


def synced(group: ClassicGroup, assignment: bytes) -> Body:
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
    group: ClassicGroup, member: Member, turn: Turn, timeout_ms: int | None = None
) -> None:
    turn.decision.start_timer(
        session_key(group, member.member_id),
        member.session_timeout_ms if timeout_ms is None else timeout_ms,
        SessionExpired(None, group.group_id, member.member_id),
    )


# --------------------------------------------------------------------------------------- members


def remove_member(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    """Remove a member, and answer its delayed requests with UNKNOWN_MEMBER_ID.

    If its client is alive, it joins again.
    """
    turn.decision.cancel_timer(session_key(group, member_id))
    member = group.members.get(member_id)
    if member is not None:
        code = ErrorCode.UNKNOWN_MEMBER_ID
        turn.decision.respond(group.take_join(member), join_error(code, ""))
        turn.decision.respond(group.take_sync(member), sync_error(code))
    group.remove(member_id)


def park_join(group: ClassicGroup, member: Member, token: Token | None, turn: Turn) -> None:
    """Delay a JoinGroup. It replaces a delayed one, which the client no longer waits for."""
    replaced = group.park_join(member, token)
    code = ErrorCode.REBALANCE_IN_PROGRESS
    turn.decision.respond(replaced, join_error(code, member.member_id))


# -------------------------------------------------------------------------------------- rebalancing


def rebalance(group: ClassicGroup, turn: Turn) -> None:
    """React to a member that joined, left or changed."""
    if group.can_rebalance:
        prepare(group, turn)
    else:
        complete_join_if_all_joined(group, turn)


def prepare(group: ClassicGroup, turn: Turn) -> None:
    if group.state is GroupState.COMPLETING_REBALANCE:
        _send_back(group, turn)
    group.pending_syncs.clear()
    turn.decision.cancel_timer(sync_key(group))
    is_initial = group.state is GroupState.EMPTY
    group.move_to(GroupState.PREPARING_REBALANCE, turn.now_ms)
    if is_initial:
        delay_ms = turn.settings.initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.new_member_added = False
        _wait_for_more(group, delay_ms, remaining_ms, turn)
    elif group.has_all_joined:
        complete_join(group, turn)
    else:
        _wait_for_joins(group, turn)


def _send_back(group: ClassicGroup, turn: Turn) -> None:
    """Ask members to rejoin that wait for an assignment which will not come."""
    for member in group.members.values():
        token = group.take_sync(member)
        if token is not None:
            turn.decision.respond(token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
            restart_session(group, member, turn)


def _wait_for_more(group: ClassicGroup, delay_ms: int, remaining_ms: int, turn: Turn) -> None:
    event = InitialDelayEnded(None, group.group_id, delay_ms, remaining_ms)
    turn.decision.start_timer(join_key(group), delay_ms, event)


def _wait_for_joins(group: ClassicGroup, turn: Turn) -> None:
    event = JoinTimedOut(None, group.group_id)
    turn.decision.start_timer(join_key(group), group.rebalance_timeout_ms, event)


def end_initial_delay(group: ClassicGroup, event: InitialDelayEnded, turn: Turn) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.new_member_added and event.remaining_ms:
        group.new_member_added = False
        delay_ms = min(turn.settings.initial_rebalance_delay_ms, event.remaining_ms)
        _wait_for_more(group, delay_ms, max(event.remaining_ms - event.delay_ms, 0), turn)
    else:
        complete_join(group, turn)


def complete_join_if_all_joined(group: ClassicGroup, turn: Turn) -> None:
    """Complete the join phase if all members have joined and the initial delay is over."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.has_all_joined
    ):
        complete_join(group, turn)


def complete_join(group: ClassicGroup, turn: Turn) -> None:
    """Start the next generation with the members that have joined.

    Static members stay even if they have not joined, until their session expires.
    """
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    turn.decision.cancel_timer(join_key(group))
    absent = [each for each in group.members.values() if each.join_token is None]
    for member in absent:
        if not member.is_static:
            remove_member(group, member.member_id, turn)
    if not group.members:
        _become_empty(group, turn)
    elif group.elect_joined_leader():
        _begin_generation(group, turn)
    else:
        _wait_for_joins(group, turn)


def _become_empty(group: ClassicGroup, turn: Turn) -> None:
    value = GroupMetadata(
        group.protocol_type or "", group.generation + 1, None, None, turn.now_ms, ()
    )
    turn.decision.records.append(GroupRecord(group.group_id, value))
    turn.decision.if_failed = EmptyGroupNotWritten(None, group.group_id, value.generation)


def _begin_generation(group: ClassicGroup, turn: Turn) -> None:
    group.begin_generation(turn.now_ms)
    for member in group.members.values():
        turn.decision.respond(group.take_join(member), joined(group, member.member_id))
        restart_session(group, member, turn)
        member.is_new = False
        group.pending_syncs[member.member_id] = None
    turn.decision.start_timer(
        sync_key(group),
        group.rebalance_timeout_ms,
        SyncTimedOut(None, group.group_id, group.generation),
    )


def hand_out(group: ClassicGroup, assignments: dict[str, bytes], turn: Turn) -> None:
    """Write the leader's assignment, and send it to the members that wait for it.

    The group becomes Stable when the record is applied. Members that the leader left out have an
    empty assignment.
    """
    value = group.metadata(turn.now_ms, assignments)
    turn.decision.records.append(GroupRecord(group.group_id, value))
    for member in group.members.values():
        token = group.take_sync(member)
        if token is not None:
            assignment = assignments.get(member.member_id, b"")
            turn.decision.respond(token, synced(group, assignment))
            restart_session(group, member, turn)
