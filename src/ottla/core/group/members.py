"""Membership of all groups of a shard: dispatches requests and timers by group protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Never

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.coordinator import Token
from ottla.core.group import (
    classic_in_consumer,
    consumer_heartbeat,
    events,
    join,
    membership,
    migration,
    rebalance,
)
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
)
from ottla.core.group.consumer_rebalance import (
    remove_members,
    restart_session,
    start_revocation_timer,
    tombstones,
)
from ottla.core.group.consumer_records import MemberState
from ottla.core.group.context import DecisionContext
from ottla.core.group.events import UNKNOWN_MEMBER
from ottla.core.group.offset_store import OffsetStore
from ottla.core.group.records import GroupRecord
from ottla.core.group.registry import Groups

if TYPE_CHECKING:
    from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponseDict
    from ottla.wire.messages.heartbeat import HeartbeatResponseDict
    from ottla.wire.messages.leave_group import LeaveGroupResponseDict

Decider = Callable[[Any, DecisionContext], None]


class Members:
    def __init__(self, groups: Groups, offsets: OffsetStore) -> None:
        self._groups = groups
        self._offsets = offsets
        self.deciders: Mapping[type, Decider] = {
            events.HeartbeatReceived: self._heartbeat,
            events.ConsumerHeartbeat: self._consumer_heartbeat,
            events.JoinRequested: self._join,
            events.SyncRequested: self._sync,
            events.LeaveRequested: self._leave,
            events.SessionExpired: self._expire_session,
            events.InitialDelayEnded: self._if_classic(rebalance.end_initial_delay),
            events.JoinTimedOut: self._if_classic(_end_join),
            events.SyncTimedOut: self._if_classic(membership.expire_syncs),
            events.AssignmentNotWritten: self._if_classic(membership.retry_assignment),
            events.EmptyGroupNotWritten: self._if_classic(membership.become_empty_unwritten),
            events.StaticMemberNotWritten: self._if_classic(join.undo_replacement),
            events.GroupDowngraded: self._if_classic(_rebalance_downgraded),
            events.RevocationTimedOut: self._expire_revocation,
            events.RejoinTimedOut: self._expire_member,
            events.ResyncTimedOut: self._expire_member,
            events.ConsumerChangeNotWritten: self._restart_timers,
        }

    # ------------------------------------------------------------------------------------ lifecycle

    def loaded(self, context_for: Callable[[str], DecisionContext], max_size: int) -> None:
        """Start the sessions of all members; they are assumed to be alive after loading."""
        for group in self._groups.values():
            context = context_for(group.group_id)
            if isinstance(group, ConsumerGroup):
                group.check_topics_again()
                _start_timers(group, context)
                continue
            for classic in group.members.values():
                rebalance.restart_session(group, classic, context)
            if len(group.members) > max_size:
                rebalance.prepare(group, context)

    def waiting(self) -> list[Token[Never]]:
        return [
            token
            for group in self._groups.values()
            if isinstance(group, ClassicGroup)
            for member in group.members.values()
            for token in (member.join_token, member.sync_token)
            if token is not None
        ]

    def _if_classic(self, decide: Callable[[ClassicGroup, Any, DecisionContext], None]) -> Decider:
        def decide_if_classic(event: events.GroupEvent, context: DecisionContext) -> None:
            group = self._groups.classic(event.group_id)
            if group is not None:
                decide(group, event, context)
                self._forget_if_blank(group)

        return decide_if_classic

    def _forget_if_blank(self, group: ClassicGroup) -> None:
        if group.is_blank and not self._offsets.has_any(group.group_id):
            self._groups.pop(group.group_id, None)

    # ----------------------------------------------------------------------------- classic protocol

    def _join(self, event: events.JoinRequested, context: DecisionContext) -> None:
        group = self._groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            if group.members:
                self._join_consumer(group, event, context)
                return
            if event.member_id == UNKNOWN_MEMBER:
                # An empty consumer group is deleted to make way for the classic group.
                context.decision.records += tombstones(group)
                group = self._groups[event.group_id] = ClassicGroup(event.group_id, context.now_ms)
            else:
                group = None
        if group is None and event.member_id != UNKNOWN_MEMBER:
            error = rebalance.join_error(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)
            context.decision.respond(event.token, error)
            return
        if group is None:
            group = self._groups[event.group_id] = ClassicGroup(event.group_id, context.now_ms)
        join.join(group, event, context)
        self._forget_if_blank(group)

    def _join_consumer(
        self, group: ConsumerGroup, event: events.JoinRequested, context: DecisionContext
    ) -> None:
        try:
            body = classic_in_consumer.join(group, event, context)
        except KafkaError as error:
            _discard_decision(group, context)
            is_full = error.code == ErrorCode.GROUP_MAX_SIZE_REACHED
            body = rebalance.join_error(error.code, UNKNOWN_MEMBER if is_full else event.member_id)
        context.decision.respond(event.token, body)

    def _sync(self, event: events.SyncRequested, context: DecisionContext) -> None:
        group = self._groups.get(event.group_id)
        if isinstance(group, ClassicGroup):
            membership.sync(group, event, context)
            return
        try:
            if group is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            body = classic_in_consumer.sync(group, event, context)
        except KafkaError as error:
            body = rebalance.sync_error(error.code)
        context.decision.respond(event.token, body)

    def _heartbeat(self, event: events.HeartbeatReceived, context: DecisionContext) -> None:
        code = ErrorCode.NONE
        try:
            group = self._groups.get(event.group_id)
            if group is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if isinstance(group, ConsumerGroup):
                classic_in_consumer.heartbeat(group, event, context)
            else:
                membership.heartbeat(group, event, context)
        except KafkaError as error:
            code = error.code
        body: HeartbeatResponseDict = {"error_code": code}
        context.decision.respond(event.token, body)

    def _leave(self, event: events.LeaveRequested, context: DecisionContext) -> None:
        group = self._groups.get(event.group_id)
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            members = [membership.left(each, code) for each in event.members]
            unknown: LeaveGroupResponseDict = {"members": members}
            context.decision.respond(event.token, unknown)
        elif isinstance(group, ConsumerGroup):
            leaving, body = classic_in_consumer.leave(group, event)
            self._remove(group, leaving, context)
            context.decision.respond(event.token, body)
        else:
            membership.leave(group, event, context)
            self._forget_if_blank(group)

    # ---------------------------------------------------------------------------- consumer protocol

    def _consumer_heartbeat(
        self, event: events.ConsumerHeartbeat, context: DecisionContext
    ) -> None:
        group = self._groups.get(event.group_id)
        try:
            if event.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                body = self._leave_consumer(_consumer(group, event.group_id), event, context)
            elif isinstance(group, ConsumerGroup):
                body = consumer_heartbeat.heartbeat(group, event, context)
            else:
                body = self._begin_consumer(group, event, context)
        except KafkaError as error:
            _discard_decision(group, context)
            body = {"error_code": error.code, "error_message": error.message}
        context.decision.respond(event.token, body)

    def _begin_consumer(
        self, group: ClassicGroup | None, event: events.ConsumerHeartbeat, context: DecisionContext
    ) -> ConsumerGroupHeartbeatResponseDict:
        """Handle a join to a group that does not exist or is a classic group."""
        if event.member_epoch != JOIN_EPOCH:
            _consumer(group, event.group_id)
        if group is None or group.state is GroupState.EMPTY:
            if group is not None and group.is_recorded:
                context.decision.records.append(GroupRecord(event.group_id, None))
            return consumer_heartbeat.heartbeat(ConsumerGroup(event.group_id), event, context)
        body = consumer_heartbeat.heartbeat(migration.upgrade(group, context), event, context)
        migration.send_waiting_to_join(group, context)
        return body

    def _leave_consumer(
        self, group: ConsumerGroup, event: events.ConsumerHeartbeat, context: DecisionContext
    ) -> ConsumerGroupHeartbeatResponseDict:
        member = group.known_member(event.member_id, event.instance_id)
        if event.member_epoch == STATIC_LEAVE_EPOCH:
            consumer_heartbeat.leave_temporarily(group, member, context)
        else:
            self._remove(group, [member], context)
        return {"member_id": member.member_id, "member_epoch": event.member_epoch}

    def _remove(
        self, group: ConsumerGroup, members: Iterable[ConsumerMember], context: DecisionContext
    ) -> None:
        leaving = list(members)
        if not leaving:
            return
        if migration.is_downgraded_without(group, leaving, context):
            migration.downgrade(group, leaving, context)
        else:
            remove_members(group, leaving, context)
        context.decision.if_failed = events.ConsumerChangeNotWritten(None, group.group_id)

    # ------------------------------------------------------------------------------------ timers

    def _expire_session(self, event: events.SessionExpired, context: DecisionContext) -> None:
        group = self._groups.get(event.group_id)
        if isinstance(group, ClassicGroup):
            membership.expire_session(group, event, context)
            self._forget_if_blank(group)
        else:
            self._expire_member(event, context)

    def _expire_member(
        self,
        event: events.SessionExpired | events.RejoinTimedOut | events.ResyncTimedOut,
        context: DecisionContext,
    ) -> None:
        group = self._groups.consumer(event.group_id)
        member = None if group is None else group.members.get(event.member_id)
        if group is not None and member is not None:
            self._remove(group, [member], context)

    def _expire_revocation(
        self, event: events.RevocationTimedOut, context: DecisionContext
    ) -> None:
        group = self._groups.consumer(event.group_id)
        member = None if group is None else group.members.get(event.member_id)
        if group is not None and member is not None and member.epoch == event.member_epoch:
            self._remove(group, [member], context)

    def _restart_timers(
        self, event: events.ConsumerChangeNotWritten, context: DecisionContext
    ) -> None:
        """Restart the timers and recheck the topics after a change could not be written."""
        group = self._groups.consumer(event.group_id)
        if group is not None:
            group.check_topics_again()
            _start_timers(group, context)


def _start_timers(group: ConsumerGroup, context: DecisionContext) -> None:
    for member in group.members.values():
        restart_session(group, member, context)
        if member.state == MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            start_revocation_timer(group, member, context)


def _consumer(group: object, group_id: str) -> ConsumerGroup:
    """Check that the group is a consumer group.

    Raises:
        KafkaError: GROUP_ID_NOT_FOUND if it is not.
    """
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    return group


def _discard_decision(group: object, context: DecisionContext) -> None:
    """Discard the decision so far, because the request is rejected after all."""
    context.decision.records.clear()
    context.decision.timers.clear()
    context.decision.if_failed = None
    if isinstance(group, ConsumerGroup):
        group.check_topics_again()


def _end_join(group: ClassicGroup, event: events.JoinTimedOut, context: DecisionContext) -> None:
    rebalance.complete_join(group, context)


def _rebalance_downgraded(
    group: ClassicGroup, event: events.GroupDowngraded, context: DecisionContext
) -> None:
    if group.can_rebalance:
        rebalance.prepare(group, context)
