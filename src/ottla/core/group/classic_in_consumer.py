"""Consumer group members that use the classic protocol (KIP-848, online migration).

To such a member, the group looks like a classic group with another leader: JoinGroup and SyncGroup
are answered at once with the assignment that the broker has made, and the generation is the member
epoch. When the assignment changes, the heartbeat response asks the member to rejoin. The member
reports the partitions it owns in its subscription; with an eager assignor there are none, because
it has revoked all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.group.consumer_group import NO_METADATA, ConsumerGroup, ConsumerMember
from ottla.core.group.consumer_heartbeat import check_size, replace_static_member
from ottla.core.group.consumer_rebalance import (
    Plan,
    cancel_timers,
    rejoin_key,
    restart_session,
    resync_key,
    tombstones,
)
from ottla.core.group.consumer_records import (
    Assignment,
    ClassicMetadata,
    ConsumerRecord,
    MemberMetadata,
    MemberState,
)
from ottla.core.group.context import DecisionContext
from ottla.core.group.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    read_subscription,
)
from ottla.core.group.events import (
    UNKNOWN_MEMBER,
    HeartbeatReceived,
    JoinRequested,
    LeaveRequested,
    LeavingMember,
    RejoinTimedOut,
    ResyncTimedOut,
    SyncRequested,
)
from ottla.core.group.membership import left
from ottla.core.group.migration import (
    assignment_bytes,
    classic_metadata,
    is_downgraded_without,
    write_classic,
)
from ottla.core.group.rebalance import join_error
from ottla.core.group.topics import TopicsView

if TYPE_CHECKING:
    from ottla.wire.messages.join_group import JoinGroupResponseDict
    from ottla.wire.messages.leave_group import LeaveGroupResponseDict
    from ottla.wire.messages.sync_group import SyncGroupResponseDict

# --------------------------------------------------------------------------------------- joining


def join(
    group: ConsumerGroup, event: JoinRequested, context: DecisionContext
) -> JoinGroupResponseDict:
    """Handle a JoinGroup and return the response body.

    Raises:
        KafkaError: The member cannot join.
    """
    is_unknown = event.member_id == UNKNOWN_MEMBER
    prefix = event.instance_id or event.client_id
    member_id = f"{prefix}-{event.new_id}" if is_unknown else event.member_id
    check_size(group, member_id, context)
    subscription = _subscription(group, event)
    if is_unknown and event.instance_id is None and event.member_id_required:
        return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    plan = Plan.of(group)
    replaced = group.static_member(event.instance_id) if is_unknown else None
    before = _find(plan, event, member_id, context)
    after = before._replace(metadata=_metadata(before.metadata, event, subscription))
    is_changed = plan.put_member(after, context)
    plan.next_epoch_if(is_changed, context)
    plan.assign_if_due(context)
    after = plan.reconcile(after, _with_ids(subscription.owned, context.topics), context)
    context.decision.cancel_timer(rejoin_key(group, member_id))
    group.awaited_joins.discard(member_id)
    if replaced is not None:
        cancel_timers(group, replaced.member_id, context)
    if replaced is not None and is_downgraded_without(group, [replaced], context, after):
        write_classic(plan, _tombstones(plan), context)
    else:
        restart_session(group, after, context)
        context.decision.start_timer(
            resync_key(group, member_id),
            event.rebalance_timeout_ms,
            ResyncTimedOut(None, group.group_id, member_id),
        )
    return {
        "generation_id": after.epoch,
        "protocol_type": CONSUMER_PROTOCOL_TYPE,
        "protocol_name": event.protocols[0][0],
        "leader": "",
        "member_id": member_id,
        "members": [],
    }


def _tombstones(plan: Plan) -> list[ConsumerRecord]:
    """Return the tombstones of the planned group, which lacks the renamed static members."""
    planned = ConsumerGroup(plan.group.group_id)
    planned.members, planned.targets, planned.patterns = plan.members, plan.targets, plan.patterns
    planned.has_subscription_metadata = plan.group.has_subscription_metadata
    return tombstones(planned)


def _subscription(group: ConsumerGroup, event: JoinRequested) -> Subscription:
    is_supported = (
        event.protocol_type == CONSUMER_PROTOCOL_TYPE
        and event.protocols
        and group.supports_classic(name for name, _ in event.protocols)
    )
    try:
        if is_supported:
            return read_subscription(event.protocols[0][1])
    except ValueError:
        pass
    raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _find(
    plan: Plan, event: JoinRequested, member_id: str, context: DecisionContext
) -> ConsumerMember:
    group = plan.group
    new = ConsumerMember(member_id, NO_METADATA)
    if event.instance_id is None:
        return group.members.get(member_id, new)
    if event.member_id != UNKNOWN_MEMBER:
        return group.known_member(member_id, event.instance_id)
    known = group.static_member(event.instance_id)
    return new if known is None else replace_static_member(plan, known, member_id, context)


def _metadata(
    known: MemberMetadata, event: JoinRequested, subscription: Subscription
) -> MemberMetadata:
    new = classic_metadata(event, subscription)
    return new._replace(
        instance_id=new.instance_id or known.instance_id, rack_id=new.rack_id or known.rack_id
    )


def _with_ids(owned: Mapping[str, frozenset[int]], topics: TopicsView) -> Assignment:
    return {
        topics.topics[name].topic_id: partitions
        for name, partitions in owned.items()
        if partitions and name in topics.topics
    }


# ----------------------------------------------------------------------------- syncs and heartbeats


def sync(
    group: ConsumerGroup, event: SyncRequested, context: DecisionContext
) -> SyncGroupResponseDict:
    """Handle a SyncGroup and return the response body.

    Raises:
        KafkaError: The member is unknown, or must rejoin.
    """
    member, classic = _classic_member(group, event.member_id, event.instance_id)
    if event.generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    name, metadata = classic.protocols[0]
    if event.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or (
        event.protocol_name not in (None, name)
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.epoch and member.state != MemberState.UNREVOKED_PARTITIONS:
        _await_join(group, member, context)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    context.decision.cancel_timer(resync_key(group, member.member_id))
    restart_session(group, member, context)
    return {
        "protocol_type": event.protocol_type,
        "protocol_name": event.protocol_name,
        "assignment": assignment_bytes(metadata, member.assigned, context.topics),
    }


def heartbeat(group: ConsumerGroup, event: HeartbeatReceived, context: DecisionContext) -> None:
    """Handle a Heartbeat.

    Raises:
        KafkaError: The member is unknown, or must rejoin.
    """
    member, _ = _classic_member(group, event.member_id, event.instance_id)
    if event.generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    restart_session(group, member, context)
    # The member must rejoin if the group epoch has advanced, if it has to revoke partitions, or if
    # all partitions it waits for have become free.
    if (
        member.epoch < group.epoch
        or member.state == MemberState.UNREVOKED_PARTITIONS
        or (
            member.state == MemberState.UNRELEASED_PARTITIONS
            and not _waits_for_others(group, member)
        )
    ):
        _await_join(group, member, context)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        group.is_owned_by_another(topic_id, partition, member.member_id)
        for topic_id, partitions in group.targets.get(member.member_id, {}).items()
        for partition in partitions - member.assigned.get(topic_id, frozenset())
    )


def _await_join(group: ConsumerGroup, member: ConsumerMember, context: DecisionContext) -> None:
    """Start the rejoin timer, unless the member has already been asked to rejoin."""
    if member.member_id in group.awaited_joins:
        return
    group.awaited_joins.add(member.member_id)
    context.decision.start_timer(
        rejoin_key(group, member.member_id),
        member.metadata.rebalance_timeout_ms,
        RejoinTimedOut(None, group.group_id, member.member_id),
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = group.known_member(member_id, instance_id)
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
        )
    return member, member.classic


# --------------------------------------------------------------------------------------- leaving


def leave(
    group: ConsumerGroup, event: LeaveRequested
) -> tuple[list[ConsumerMember], LeaveGroupResponseDict]:
    """Return the members that leave, and the response body.

    Administrators also use LeaveGroup to remove members that use the consumer protocol.
    """
    leaving: dict[str, ConsumerMember] = {}
    responses = []
    for each in event.members:
        code = ErrorCode.NONE
        try:
            member = _leaving_member(group, each)
            if member.member_id in leaving:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            leaving[member.member_id] = member
        except KafkaError as error:
            code = error.code
        responses.append(left(each, code))
    return list(leaving.values()), {"members": responses}


def _leaving_member(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    if leaving.member_id == UNKNOWN_MEMBER:
        # An administrator removes a static member by its instance id alone.
        member = group.static_member(leaving.instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member
    return group.known_member(leaving.member_id, leaving.instance_id)
