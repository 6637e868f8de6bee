"""Reconciliation: moves a member from its current to its target assignment, one step per heartbeat.

A partition that moves between members is first revoked by its owner, which confirms that, and only
then assigned to the new member. Nothing else stops: members continue with all partitions that are
neither revoked from them nor newly assigned to them.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.group.consumer_group import NO_PARTITIONS, ConsumerMember
from ottla.core.group.consumer_records import Assignment, MemberState

IsTaken = Callable[[bytes, int], bool]
"""Predicate: whether another member still owns the partition."""


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    is_taken: IsTaken,
    owned: Assignment | None,
) -> ConsumerMember:
    """Return the member after the next step towards its target assignment.

    Args:
        member: The member's current state.
        target_epoch: The assignment epoch of the group.
        target: The member's target assignment.
        is_taken: Whether another member still owns a partition.
        owned: The partitions that the member reports as owned, or None if it reports nothing.

    Raises:
        KafkaError: FENCED_MEMBER_EPOCH if the member must rejoin.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    epoch = member.epoch
    if member.state == MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(owned, member.pending_revocation):
            return member
        epoch += 1
    elif member.state not in (MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS):
        if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its "
                "partitions and rejoin.",
            )
        epoch = target_epoch
    return _step(member, epoch, target_epoch, target, is_taken, owned)


def _step(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    is_taken: IsTaken,
    owned: Assignment | None,
) -> ConsumerMember:
    kept: dict[bytes, frozenset[int]] = {}
    given_up: dict[bytes, frozenset[int]] = {}
    gained: dict[bytes, frozenset[int]] = {}
    waits = False
    for topic_id in {**target, **member.assigned}:
        has = member.assigned.get(topic_id, frozenset())
        wants = target.get(topic_id, frozenset())
        free = frozenset(each for each in wants - has if not is_taken(topic_id, each))
        waits = waits or len(free) < len(wants - has)
        for parts, partitions in ((kept, has & wants), (given_up, has - wants), (gained, free)):
            if partitions:
                parts[topic_id] = partitions
    if given_up and _still_owns(owned, given_up):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, given_up)
    for topic_id, partitions in gained.items():
        kept[topic_id] = kept.get(topic_id, frozenset()) | partitions
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(member, target_epoch, state, kept, NO_PARTITIONS)


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Assignment,
    pending_revocation: Assignment,
) -> ConsumerMember:
    return ConsumerMember(
        member.member_id, member.metadata, epoch, member.epoch, state, assigned, pending_revocation
    )


def _still_owns(owned: Assignment | None, given_up: Assignment) -> bool:
    # A member that does not report its partitions may still own all of them.
    if owned is None:
        return True
    return any(
        partitions & given_up.get(topic_id, frozenset()) for topic_id, partitions in owned.items()
    )
