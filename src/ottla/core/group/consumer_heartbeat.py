"""ConsumerGroupHeartbeat: members join, stay in the group and leave.

epoch  meaning
 0     join, or rejoin without owned partitions
 > 0   heartbeat; the epoch must be the member epoch or, in case the last response was lost, the
       previous one with no owned partitions other than the assigned ones
-1     leave
-2     a static member leaves temporarily: its partitions stay assigned until its session expires,
       and the next member with its instance id takes its place
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.group.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_METADATA,
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
)
from ottla.core.group.consumer_rebalance import Plan, restart_session
from ottla.core.group.consumer_records import (
    Assignment,
    CurrentRecord,
    MemberMetadata,
    MemberState,
)
from ottla.core.group.context import DecisionContext
from ottla.core.group.events import UNCHANGED, ConsumerHeartbeat
from ottla.core.group.topic_pattern import InvalidPattern, compile_pattern

if TYPE_CHECKING:
    from ottla.wire.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatResponseDict,
        TopicPartitionsResponseDict,
    )

_FIRST_WITH_CLIENTS_OWN_IDS = 1


def check(event: ConsumerHeartbeat, version: int, assignors: Collection[str]) -> None:
    """Validate a request by itself, without the state of the group.

    Args:
        event: The heartbeat.
        version: The version of the request.
        assignors: The names of the configured assignors.

    Raises:
        KafkaError: The request is invalid.
    """
    epoch = event.member_epoch
    if version >= _FIRST_WITH_CLIENTS_OWN_IDS or epoch > 0 or epoch == LEAVE_EPOCH:
        _reject_if(not event.member_id.strip(), "MemberId can't be empty.")
    _reject_if(not event.group_id.strip(), "GroupId can't be empty.")
    _reject_if(_is_empty(event.instance_id), "InstanceId can't be empty.")
    _reject_if(_is_empty(event.rack_id), "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_first(event)
    _reject_if(
        epoch == STATIC_LEAVE_EPOCH and event.instance_id is None, "InstanceId can't be null."
    )
    _reject_if(epoch < STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    if event.assignor is not None and event.assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {event.assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )
    if event.pattern:
        check_pattern(event.pattern)


def _check_first(event: ConsumerHeartbeat) -> None:
    _reject_if(
        event.rebalance_timeout_ms == UNCHANGED,
        "RebalanceTimeoutMs must be provided in first request.",
    )
    _reject_if(
        event.owned is None or bool(event.owned), "TopicPartitions must be empty when (re-)joining."
    )
    _reject_if(
        event.topics is None and event.pattern is None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def check_pattern(pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except InvalidPattern as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from None


def _is_empty(text: str | None) -> bool:
    return text is not None and not text.strip()


def _reject_if(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


# --------------------------------------------------------------------------- joining and heartbeats


def heartbeat(
    group: ConsumerGroup, event: ConsumerHeartbeat, context: DecisionContext
) -> ConsumerGroupHeartbeatResponseDict:
    """Handle a heartbeat of a member that joins or stays, and return the response body.

    Raises:
        KafkaError: The member is unknown, fenced, or cannot join.
    """
    if _is_unchanged(group, event, context):
        member = group.members[event.member_id]
        restart_session(group, member, context)
        return _response(member, context)
    check_size(group, event.member_id, context)
    member_id = event.member_id or event.new_id
    plan = Plan.of(group, event.visible)
    before = _find(plan, event, member_id, context)
    after = before._replace(metadata=_metadata(before.metadata, event))
    return update_member(plan, before, after, event, context)


def update_member(
    plan: Plan,
    before: ConsumerMember,
    after: ConsumerMember,
    event: ConsumerHeartbeat,
    context: DecisionContext,
) -> ConsumerGroupHeartbeatResponseDict:
    """Apply a member's changes, advance the group, and return the response body."""
    group = plan.group
    is_changed = plan.put_member(after, context)
    plan.next_epoch_if(is_changed, context)
    plan.assign_if_due(context)
    after = plan.reconcile(after, event.owned, context)
    restart_session(group, after, context)
    body = _response(after, context)
    is_full = event.member_epoch == JOIN_EPOCH or (
        event.rebalance_timeout_ms != UNCHANGED
        and (event.topics is not None or event.pattern is not None)
        and event.owned is not None
    )
    if is_full or before.assigned != after.assigned:
        body["assignment"] = {"topic_partitions": assignment_body(after.assigned)}
    return body


def _response(
    member: ConsumerMember, context: DecisionContext
) -> ConsumerGroupHeartbeatResponseDict:
    return {
        "member_id": member.member_id,
        "member_epoch": member.epoch,
        "heartbeat_interval_ms": context.consumer_heartbeat_interval_ms,
    }


def _is_unchanged(group: ConsumerGroup, event: ConsumerHeartbeat, context: DecisionContext) -> bool:
    """Return whether the heartbeat changes nothing, as nearly all of them do."""
    member = group.members.get(event.member_id)
    return (
        member is not None
        and member.classic is None
        and event.member_epoch == member.epoch == group.assignment_epoch == group.epoch
        and event.topics is event.pattern is event.assignor is event.rack_id is None
        and event.instance_id is None
        and event.rebalance_timeout_ms == UNCHANGED
        and group.topics_revision == context.topics.revision
        and member.state == MemberState.STABLE
        and event.client_id == member.metadata.client_id
        and event.client_host == member.metadata.client_host
    )


def assignment_body(assignment: Assignment) -> list[TopicPartitionsResponseDict]:
    return [
        {"topic_id": topic_id, "partitions": sorted(partitions)}
        for topic_id, partitions in assignment.items()
    ]


def check_size(group: ConsumerGroup, member_id: str, context: DecisionContext) -> None:
    largest = context.settings.consumer_max_size
    if len(group.members) >= largest and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {largest} members.",
        )


def _find(
    plan: Plan, event: ConsumerHeartbeat, member_id: str, context: DecisionContext
) -> ConsumerMember:
    """Return the member that sent the heartbeat, or a new one if it is joining.

    Raises:
        KafkaError: The member is unknown or fenced, or its instance id is in use.
    """
    group, is_join = plan.group, event.member_epoch == JOIN_EPOCH
    if event.instance_id is None:
        if is_join and member_id not in group.members:
            return ConsumerMember(member_id, NO_METADATA)
        member = group.member(member_id)
        _check_epoch(member, event)
        return member
    if not is_join:
        member = group.known_member(member_id, event.instance_id)
        _check_epoch(member, event)
        return member
    known = group.static_member(event.instance_id)
    if known is None:
        return group.members.get(member_id) or ConsumerMember(member_id, NO_METADATA)
    if known.member_id == member_id and known.epoch != STATIC_LEAVE_EPOCH:
        return known  # it retries its first request, after a lost response
    if known.classic is None and known.epoch != STATIC_LEAVE_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {event.instance_id} cannot join the group "
            f"because the instance id is owned by {known.member_id} member.",
        )
    return replace_static_member(plan, known, member_id, context)


def replace_static_member(
    plan: Plan, known: ConsumerMember, member_id: str, context: DecisionContext
) -> ConsumerMember:
    """Replace a static member that has returned under a new member id.

    It keeps its assigned partitions. Partitions pending revocation count as revoked, because a
    member that joins owns nothing.
    """
    member = known._replace(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    plan.rename_member(known, member, context)
    return member


def _check_epoch(member: ConsumerMember, event: ConsumerHeartbeat) -> None:
    epoch = event.member_epoch
    if epoch == JOIN_EPOCH or epoch == member.epoch:
        return
    if epoch == member.previous_epoch and _is_subset(event.owned, member.assigned):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _is_subset(owned: Assignment | None, assigned: Assignment) -> bool:
    return owned is not None and all(
        partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items()
    )


def _metadata(known: MemberMetadata, event: ConsumerHeartbeat) -> MemberMetadata:
    """Merge the fields of the request, where null means unchanged, into the known metadata."""
    timeout_ms = event.rebalance_timeout_ms
    return MemberMetadata(
        instance_id=_value_or(event.instance_id, known.instance_id),
        rack_id=_value_or(event.rack_id, known.rack_id),
        client_id=event.client_id,
        client_host=event.client_host,
        topics=known.topics if event.topics is None else tuple(sorted(set(event.topics))),
        pattern=_value_or(event.pattern, known.pattern),
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == UNCHANGED else timeout_ms,
        assignor=_value_or(event.assignor, known.assignor),
        classic=None,
    )


def _value_or(value: str | None, known: str | None) -> str | None:
    return known if value is None else value


# --------------------------------------------------------------------------------------- leaving


def find_leaving(group: ConsumerGroup, event: ConsumerHeartbeat) -> ConsumerMember:
    """Return the member that leaves.

    Raises:
        KafkaError: The member is unknown or fenced.
    """
    return group.known_member(event.member_id, event.instance_id)


def leave_temporarily(
    group: ConsumerGroup, member: ConsumerMember, context: DecisionContext
) -> None:
    """Mark a static member as temporarily gone."""
    left = member._replace(epoch=STATIC_LEAVE_EPOCH, pending_revocation=NO_PARTITIONS)
    record = CurrentRecord(group.group_id, member.member_id, left.current)
    context.decision.records.append(record)
