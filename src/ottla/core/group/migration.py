"""Online migration of groups between protocols (`group.consumer.migration.policy`).

Classic to consumer, when a member that uses the consumer protocol joins
    The existing members become members of the consumer group that still use the classic protocol,
    and keep their assignments. Members that wait for a rebalance are asked to rejoin.

Consumer to classic, when the last member that uses the consumer protocol leaves and others remain
    The remaining members form a classic group, whose assignment is the target assignment, and
    rebalance.

Both write the tombstones of the old group and the records of the new one in a single batch, so that
a crash leaves the group in one of the two protocols, never in both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.group.classic import ClassicGroup
from ottla.core.group.consumer_group import ConsumerGroup, ConsumerMember
from ottla.core.group.consumer_rebalance import (
    Plan,
    cancel_timers,
    hash_of_topics,
    restart_session,
    tombstones,
)
from ottla.core.group.consumer_records import (
    Assignment,
    ClassicMetadata,
    ConsumerRecord,
    CurrentAssignment,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberMetadata,
    MemberRecord,
    MemberState,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from ottla.core.group.context import DecisionContext
from ottla.core.group.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from ottla.core.group.events import GroupDowngraded, JoinRequested, SessionExpired
from ottla.core.group.member import ClassicMember
from ottla.core.group.rebalance import join_error, sync_error
from ottla.core.group.records import GroupMetadata, GroupRecord
from ottla.core.group.records import MemberMetadata as ClassicMemberMetadata
from ottla.core.group.topics import TopicsView

# ------------------------------------------------------------------------------ classic to consumer


def upgrade(group: ClassicGroup, context: DecisionContext) -> ConsumerGroup:
    """Convert a classic group to a consumer group, and add the records to the decision.

    Returns:
        The consumer group as it will be once the records have been applied.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND if the group cannot be upgraded.
    """
    refusal = _upgrade_refusal(group, context)
    if refusal is not None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, refusal)
    try:
        records = _consumer_records(group, context.topics)
    except ValueError:
        refusal = f"{_cannot_upgrade(group)} the embedded consumer protocol is malformed."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, refusal) from None
    upgraded = ConsumerGroup(group.group_id)
    for record in records:
        upgraded.apply(record)
    context.decision.records.append(GroupRecord(group.group_id, None))
    context.decision.records += records
    for member in upgraded.members.values():
        restart_session(upgraded, member, context)
    return upgraded


def send_waiting_to_join(group: ClassicGroup, context: DecisionContext) -> None:
    """Ask members that wait for a rebalance to rejoin, now in the consumer group."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.members.values():
        context.decision.respond(group.pop_join(member), join_error(code, member.member_id))
        context.decision.respond(group.pop_sync(member), sync_error(code))


def _cannot_upgrade(group: ClassicGroup) -> str:
    return f"Cannot upgrade classic group {group.group_id} to consumer group because"


def _upgrade_refusal(group: ClassicGroup, context: DecisionContext) -> str | None:
    cannot = _cannot_upgrade(group)
    if not context.settings.can_upgrade:
        return f"{cannot} online upgrade is disabled."
    if not group.uses_consumer_protocol:
        return f"{cannot} the group does not use the consumer embedded protocol."
    if len(group.members) > context.settings.consumer_max_size:
        return f"{cannot} the group size exceeds the consumer group maximum size."
    return None


def _consumer_records(group: ClassicGroup, topics: TopicsView) -> list[ConsumerRecord]:
    """Return the records of the upgraded group.

    Raises:
        ValueError: A member's metadata or assignment is malformed.
        KafkaError: The members use a custom assignor.
    """
    group_id, epoch = group.group_id, group.generation
    members: list[tuple[str, MemberMetadata]] = []
    targets: list[tuple[str, Assignment]] = []
    taken: set[tuple[bytes, int]] = set()
    for member in group.members.values():
        members.append((member.member_id, _metadata(group, member)))
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"{_cannot_upgrade(group)} an unsupported custom assignor is in use. Please refer "
                "to the documentation or switch to a default assignor before re-attempting the "
                "upgrade.",
            )
        targets.append((member.member_id, _with_ids(assignment.partitions, topics, taken)))
    names = {name for _, metadata in members for name in metadata.topics}
    return [
        *(MemberRecord(group_id, member_id, metadata) for member_id, metadata in members),
        GroupEpochRecord(group_id, GroupEpoch(epoch, hash_of_topics(names, topics))),
        *(TargetRecord(group_id, member_id, target) for member_id, target in targets),
        TargetEpochRecord(group_id, TargetEpoch(epoch)),
        *(
            CurrentRecord(
                group_id,
                member_id,
                CurrentAssignment(epoch, epoch, MemberState.STABLE, target, {}),
            )
            for member_id, target in targets
        ),
    ]


def _metadata(group: ClassicGroup, member: ClassicMember) -> MemberMetadata:
    data = member.metadata_for(group.protocol_name) or member.protocols[0][1]
    return classic_metadata(member, read_subscription(data))


def classic_metadata(
    member: ClassicMember | JoinRequested, subscription: Subscription
) -> MemberMetadata:
    """Return the metadata in a consumer group of a member that uses the classic protocol."""
    return MemberMetadata(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        pattern=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def _with_ids(
    partitions: Mapping[str, frozenset[int]], topics: TopicsView, taken: set[tuple[bytes, int]]
) -> Assignment:
    """Replace topic names by ids. A partition assigned twice stays with the first member."""
    found: dict[bytes, frozenset[int]] = {}
    for name, numbers in partitions.items():
        topic = topics.topics.get(name)
        if topic is None:
            continue
        free = frozenset(each for each in numbers if (topic.topic_id, each) not in taken)
        taken.update((topic.topic_id, each) for each in free)
        if free:
            found[topic.topic_id] = free
    return found


# ------------------------------------------------------------------------------ consumer to classic


def is_downgraded_without(
    group: ConsumerGroup,
    leaving: Collection[ConsumerMember],
    context: DecisionContext,
    joining: ConsumerMember | None = None,
) -> bool:
    """Return whether only classic members would remain, and may form a classic group."""
    gone = {member.member_id for member in leaving}
    stay = [member for member_id, member in group.members.items() if member_id not in gone]
    if joining is not None:
        stay.append(joining)
    return (
        context.settings.can_downgrade
        and 0 < len(stay) <= context.settings.max_size
        and all(member.classic is not None for member in stay)
        and any(member.classic is None for member in leaving)
    )


def downgrade(
    group: ConsumerGroup, leaving: Collection[ConsumerMember], context: DecisionContext
) -> None:
    plan = Plan.of(group)
    for member in leaving:
        del plan.members[member.member_id]
    for member_id in group.members:
        cancel_timers(group, member_id, context)
    write_classic(plan, tombstones(group), context)
    context.decision.start_timer(
        ("downgrade", group.group_id), 0, GroupDowngraded(None, group.group_id)
    )


def write_classic(plan: Plan, last: list[ConsumerRecord], context: DecisionContext) -> None:
    """Write the group as a classic one.

    Args:
        plan: The group with its remaining members.
        last: The tombstones of the consumer group.
        context: The context of the decision.
    """
    group_id = plan.group.group_id
    protocol = _shared_protocol(plan)
    members = tuple(
        _classic_member(member, protocol, plan.targets.get(member.member_id, {}), context.topics)
        for member in plan.members.values()
    )
    leader_id = members[0].member_id if members else None
    value = GroupMetadata(
        CONSUMER_PROTOCOL_TYPE, plan.epoch, protocol, leader_id, context.now_ms, members
    )
    context.decision.records += (*last, GroupRecord(group_id, value))
    for member in members:
        context.decision.start_timer(
            ("session", group_id, member.member_id),
            member.session_timeout_ms,
            SessionExpired(None, group_id, member.member_id),
        )


def _shared_protocol(plan: Plan) -> str:
    """Return the common protocol with the most votes.

    Each member votes for the first of its protocols that all members support. There is one, because
    members can join only with a common protocol.
    """
    lists = [each.classic.protocols for each in plan.members.values() if each.classic is not None]
    shared = set.intersection(*({name for name, _ in protocols} for protocols in lists))
    ballots: dict[str, int] = {}
    for protocols in lists:
        choice = next((name for name, _ in protocols if name in shared), protocols[0][0])
        ballots[choice] = ballots.get(choice, 0) + 1
    return max(ballots, key=lambda name: ballots[name])


def _classic_member(
    member: ConsumerMember, protocol: str, target: Assignment, topics: TopicsView
) -> ClassicMemberMetadata:
    assert member.classic is not None
    metadata = dict(member.classic.protocols).get(protocol, member.classic.protocols[0][1])
    return ClassicMemberMetadata(
        member.member_id,
        member.instance_id,
        member.metadata.client_id,
        member.metadata.client_host,
        member.metadata.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        metadata,
        assignment_bytes(metadata, target, topics),
    )


def assignment_bytes(metadata: bytes, assignment: Assignment, topics: TopicsView) -> bytes:
    """Encode an assignment in the version of a member's subscription, without deleted topics."""
    version = int.from_bytes(metadata[:2], "big", signed=True)
    known = topics.topics_by_id
    names = {known[id].name: partitions for id, partitions in assignment.items() if id in known}
    return write_assignment(version, names)
