"""JoinGroup in classic groups.

Response, by the state of the group and the kind of member

    member                        Empty          Preparing…   Completing…       Stable
    no id, dynamic                gets an id first (KIP-394); older clients: as a new member
    new, or with an issued id     added and delayed; a rebalance starts or continues
    no id, known instance id      -              replaced,    replaced,         replaced; answered
                                                 delayed      rebalance         at once unless the
                                                                                protocol changes
    known, same metadata          unknown        delayed      answered at once  leader: rebalance,
                                  member                                        others: at once
    known, changed metadata       unknown        delayed      rebalance         rebalance
                                  member
"""

from __future__ import annotations

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.context import DecisionContext
from ottla.core.group.events import (
    UNKNOWN_MEMBER,
    JoinRequested,
    SessionExpired,
    StaticMemberNotWritten,
)
from ottla.core.group.member import ClassicMember
from ottla.core.group.rebalance import (
    complete_join_if_all_joined,
    delay_join,
    described_members,
    join_error,
    joined,
    prepare,
    rebalance,
    remove_member,
    restart_session,
    session_key,
    sync_error,
)
from ottla.core.group.records import GroupRecord


def join(group: ClassicGroup, event: JoinRequested, context: DecisionContext) -> None:
    """Handle a JoinGroup. The caller has created the group if the request has no member id."""
    is_unknown = event.member_id == UNKNOWN_MEMBER
    refused_id = event.member_id
    try:
        if not _has_capacity(group, event.member_id, context):
            refused_id = UNKNOWN_MEMBER
            remove_member(group, event.member_id, context)
            complete_join_if_all_joined(group, context)
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports(event.protocol_type, event.protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not is_unknown:
            _join_with_id(group, event, context)
        elif event.instance_id is not None:
            _join_static(group, event, context)
        else:
            _join_dynamic(group, event, context)
    except KafkaError as error:
        context.decision.respond(event.token, join_error(error.code, refused_id))


def _has_capacity(group: ClassicGroup, member_id: str, context: DecisionContext) -> bool:
    """Return whether the group has room for the member.

    During a rebalance, only members that have rejoined count. If the limit was lowered, the last
    ones to rejoin are rejected.
    """
    member = group.members.get(member_id)
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        is_waiting = member is not None and member.join_token is not None
        return is_waiting or group.awaiting_joins < context.settings.max_size
    return member is not None or len(group.members) < context.settings.max_size


# ------------------------------------------------------------------------------------ new members


def _join_dynamic(group: ClassicGroup, event: JoinRequested, context: DecisionContext) -> None:
    member_id = f"{event.client_id}-{event.new_id}"
    if not event.member_id_required:
        _add(group, event, member_id, context)
        return
    if len(group.pending_joins) >= context.settings.max_pending_joins:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    group.pending_joins.add(member_id)
    context.decision.start_timer(
        session_key(group, member_id),
        event.session_timeout_ms,
        SessionExpired(None, group.group_id, member_id),
    )
    context.decision.respond(event.token, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _join_static(group: ClassicGroup, event: JoinRequested, context: DecisionContext) -> None:
    assert event.instance_id is not None
    member_id = f"{event.instance_id}-{event.new_id}"
    known = group.static_members.get(event.instance_id)
    if known is None:
        _add(group, event, member_id, context)
    else:
        _replace(group, group.members[known], event, member_id, context)


def _add(
    group: ClassicGroup, event: JoinRequested, member_id: str, context: DecisionContext
) -> None:
    member = ClassicMember(
        member_id,
        event.instance_id,
        event.client_id,
        event.client_host,
        event.rebalance_timeout_ms,
        event.session_timeout_ms,
        event.protocols,
    )
    member.is_new = True
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.new_member_added = True
    if not group.members:
        group.protocol_type = event.protocol_type
    group.add(member)
    delay_join(group, member, event.token, context)
    restart_session(group, member, context, context.settings.new_member_join_timeout_ms)
    rebalance(group, context)


# ------------------------------------------------------------------------------------ known members


def _join_with_id(group: ClassicGroup, event: JoinRequested, context: DecisionContext) -> None:
    if event.member_id in group.pending_joins:
        if event.instance_id is not None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        _add(group, event, event.member_id, context)
        return
    member = group.check_member(event.member_id, event.instance_id)
    is_same = member.protocols == event.protocols
    if group.state is GroupState.EMPTY:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    if is_same and (
        group.state is GroupState.COMPLETING_REBALANCE
        or (group.state is GroupState.STABLE and group.leader_id != member.member_id)
    ):
        context.decision.respond(event.token, joined(group, member.member_id))
        return
    group.update(member, event.protocols, event.rebalance_timeout_ms, event.session_timeout_ms)
    delay_join(group, member, event.token, context)
    rebalance(group, context)


def _replace(
    group: ClassicGroup,
    member: ClassicMember,
    event: JoinRequested,
    member_id: str,
    context: DecisionContext,
) -> None:
    """Give a static member that returned without its member id a new one (KIP-345).

    A client that still uses the old member id is fenced.
    """
    old_id, old_leader = member.member_id, group.leader_id
    undo = StaticMemberNotWritten(
        None, group.group_id, event.instance_id or "", old_id,
        member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms,
    )  # fmt: skip
    fenced = ErrorCode.FENCED_INSTANCE_ID
    context.decision.respond(group.pop_join(member), join_error(fenced, old_id))
    context.decision.respond(group.pop_sync(member), sync_error(fenced))
    context.decision.cancel_timer(session_key(group, old_id))
    group.rename(member, member_id)
    group.update(member, event.protocols, event.rebalance_timeout_ms, event.session_timeout_ms)
    restart_session(group, member, context)
    keeps_protocol = (
        group.state is GroupState.STABLE and group.choose_protocol() == group.protocol_name
    )
    if keeps_protocol:
        context.decision.records.append(GroupRecord(group.group_id, group.metadata(context.now_ms)))
        context.decision.if_failed = undo
        _respond_to_replaced(group, event, member_id, old_leader, context)
        return
    delay_join(group, member, event.token, context)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may already have used the old id in its assignment.
        prepare(group, context)
    else:
        rebalance(group, context)


def _respond_to_replaced(
    group: ClassicGroup,
    event: JoinRequested,
    member_id: str,
    old_leader: str | None,
    context: DecisionContext,
) -> None:
    """Answer a static member that rejoined a Stable group.

    The leader must not assign again while the group is Stable. If its version supports it, the
    response says so (KIP-814); otherwise the response names its old member id as the leader, so
    that it acts as a follower.
    """
    body = joined(group, member_id)
    is_leader = group.leader_id == member_id
    if event.can_skip_assignment:
        body["members"] = described_members(group) if is_leader else []
        body["skip_assignment"] = is_leader
    else:
        body["members"] = []
        body["leader"] = old_leader or ""
    context.decision.respond(event.token, body)


def undo_replacement(
    group: ClassicGroup, event: StaticMemberNotWritten, context: DecisionContext
) -> None:
    """Restore a static member's old id and settings after its replacement could not be written."""
    member = group.members.get(group.static_members.get(event.instance_id, ""))
    if member is None:
        return
    context.decision.cancel_timer(session_key(group, member.member_id))
    group.rename(member, event.old_member_id)
    group.update(
        member, event.old_protocols, event.old_rebalance_timeout_ms, event.old_session_timeout_ms
    )
    restart_session(group, member, context)
