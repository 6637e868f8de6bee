"""Rebalances: gathering the members, beginning a generation, handing out assignments.

    prepare ──► (members join) ──► complete_join ──► (leader syncs) ──► hand_out
       ▲             │ join timer       │ sync timer
       └─────────────┴──────────────────┘ a member is lost or changes

Timers of a group: `join` ends the gathering, `sync` ends the wait for SyncGroups. Each member has
one, `session`. The first rebalance of an empty group waits `group.initial.rebalance.delay.ms` for
more members, and as long again while more come, up to the rebalance timeout."""

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

# --------------------------------------------------------------------------------------- answers


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
    """The leader is told of all members, the others of none."""
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
    """Requests of the member that are parked are told that it is not one any more: if its client
    lives, it joins anew."""
    turn.decision.cancel_timer(session_key(group, member_id))
    member = group.members.get(member_id)
    if member is not None:
        code = ErrorCode.UNKNOWN_MEMBER_ID
        turn.decision.respond(group.take_join(member), join_error(code, ""))
        turn.decision.respond(group.take_sync(member), sync_error(code))
    group.remove(member_id)


def park_join(group: ClassicGroup, member: Member, token: Token | None, turn: Turn) -> None:
    """A second JoinGroup of a member takes the place of the first, which has lost its client."""
    replaced = group.park_join(member, token)
    code = ErrorCode.REBALANCE_IN_PROGRESS
    turn.decision.respond(replaced, join_error(code, member.member_id))


# -------------------------------------------------------------------------------- the rebalance


def rebalance(group: ClassicGroup, turn: Turn) -> None:
    """Somebody came, went or changed."""
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
    """Members that wait for an assignment that will not come must join again."""
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
    """Not during the initial delay: more may come."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.has_all_joined
    ):
        complete_join(group, turn)


def complete_join(group: ClassicGroup, turn: Turn) -> None:
    """Begin the next generation with those who have joined. Static members stay even if they have
    not: their session decides."""
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
    """The leader has assigned. The group is Stable when the record of it is applied; members that
    the leader forgot have nothing to do."""
    value = group.metadata(turn.now_ms, assignments)
    turn.decision.records.append(GroupRecord(group.group_id, value))
    for member in group.members.values():
        token = group.take_sync(member)
        if token is not None:
            assignment = assignments.get(member.member_id, b"")
            turn.decision.respond(token, synced(group, assignment))
            restart_session(group, member, turn)
