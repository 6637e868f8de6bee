"""The groups of one partition of the offsets topic.

Every group that has offsets is known here, if only as an empty group without a protocol type: a
"simple" group, which members may join later as any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.coordinator import Body, Decision, Token
from ottla.core.group import events, join, membership, offsets, rebalance
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.events import UNKNOWN_MEMBER
from ottla.core.group.offset_store import OffsetStore
from ottla.core.group.records import (
    GroupRecord,
    GroupTopicRecord,
    OffsetRecord,
    decode_record,
    encode_record,
)
from ottla.core.group.settings import GroupSettings
from ottla.core.group.turn import Turn

CLASSIC_TYPE = "classic"


class GroupShard:
    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self._deciders: Mapping[type, Callable[[Any, Turn], None]] = {
            events.HeartbeatReceived: self._heartbeat,
            events.CommitRequested: self._commit,
            events.OffsetsRequested: self._fetch,
            events.JoinRequested: self._join,
            events.SyncRequested: self._sync,
            events.LeaveRequested: self._leave,
            events.DescribeRequested: self._describe,
            events.DeleteRequested: self._delete,
            events.OffsetDeleteRequested: self._delete_offsets,
            events.ListRequested: self._list,
            events.RetentionChecked: self._check_retention,
            events.TopicDeleted: self._forget_topic,
            events.SessionExpired: self._if_known(membership.expire_session),
            events.InitialDelayEnded: self._if_known(rebalance.end_initial_delay),
            events.JoinTimedOut: self._if_known(_end_join),
            events.SyncTimedOut: self._if_known(membership.expire_syncs),
            events.AssignmentNotWritten: self._if_known(membership.retry_assignment),
            events.EmptyGroupNotWritten: self._if_known(membership.become_empty_unwritten),
            events.StaticMemberNotWritten: self._if_known(join.undo_replacement),
        }

    # ------------------------------------------------------------------------------- the contract

    def decide(self, event: Any, now_ms: int) -> Decision:
        decision = Decision()
        self._deciders[type(event)](event, Turn(now_ms, self._settings, decision))
        return decision

    def apply(self, record: GroupTopicRecord, offset: int, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.apply(record, offset, producer_id)
            if record.value is not None and record.group_id not in self.groups:
                self.groups[record.group_id] = ClassicGroup(record.group_id)
        elif record.value is None:
            self.groups.pop(record.group_id, None)
        else:
            group = self.groups.get(record.group_id)
            if group is None:
                group = self.groups[record.group_id] = ClassicGroup(record.group_id)
            group.adopt(record.value)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.offsets.end_transaction(producer_id, commit=commit)

    def encode(self, record: GroupTopicRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupTopicRecord | None:
        return decode_record(key, value)

    def loaded(self, now_ms: int) -> Decision:
        """Members are taken to be alive, and have a session from now on."""
        decision = Decision()
        turn = Turn(now_ms, self._settings, decision)
        for group_id in self.offsets.group_ids():
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id)
        for group in self.groups.values():
            for member in group.members.values():
                rebalance.restart_session(group, member, turn)
            if len(group.members) > self._settings.max_size:
                rebalance.prepare(group, turn)
        return decision

    def unload(self) -> list[Token]:
        waiting = [
            token
            for group in self.groups.values()
            for member in group.members.values()
            for token in (member.join_token, member.sync_token)
            if token is not None
        ]
        self.groups.clear()
        return waiting

    # --------------------------------------------------------------------------------- membership

    def _if_known(
        self, decide: Callable[[ClassicGroup, Any, Turn], None]
    ) -> Callable[[Any, Turn], None]:
        def decide_if_known(event: events.GroupEvent, turn: Turn) -> None:
            group = self.groups.get(event.group_id)
            if group is not None:
                decide(group, event, turn)
                self._forget_if_blank(group)

        return decide_if_known

    def _join(self, event: events.JoinRequested, turn: Turn) -> None:
        group = self.groups.get(event.group_id)
        if group is None and event.member_id != UNKNOWN_MEMBER:
            error = rebalance.join_error(ErrorCode.UNKNOWN_MEMBER_ID, event.member_id)
            turn.decision.respond(event.token, error)
            return
        if group is None:
            group = self.groups[event.group_id] = ClassicGroup(event.group_id, turn.now_ms)
        join.join(group, event, turn)
        self._forget_if_blank(group)

    def _sync(self, event: events.SyncRequested, turn: Turn) -> None:
        group = self.groups.get(event.group_id)
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            turn.decision.respond(event.token, rebalance.sync_error(code))
        else:
            membership.sync(group, event, turn)

    def _heartbeat(self, event: events.HeartbeatReceived, turn: Turn) -> None:
        code = ErrorCode.NONE
        try:
            group = self.groups.get(event.group_id)
            if group is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            membership.heartbeat(group, event, turn)
        except KafkaError as error:
            code = error.code
        turn.decision.respond(event.token, {"error_code": code})

    def _leave(self, event: events.LeaveRequested, turn: Turn) -> None:
        group = self.groups.get(event.group_id)
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            members = [membership.left(each, code) for each in event.members]
            turn.decision.respond(event.token, {"members": members})
            return
        membership.leave(group, event, turn)
        self._forget_if_blank(group)

    def _forget_if_blank(self, group: ClassicGroup) -> None:
        if group.is_blank and not self.offsets.has_any(group.group_id):
            self.groups.pop(group.group_id, None)

    # ------------------------------------------------------------------------------------- offsets

    def _commit(self, event: events.CommitRequested, turn: Turn) -> None:
        offsets.commit(self.groups.get(event.group_id), event, turn)

    def _fetch(self, event: events.OffsetsRequested, turn: Turn) -> None:
        offsets.fetch(self.offsets, event, turn.decision)

    def _delete_offsets(self, event: events.OffsetDeleteRequested, turn: Turn) -> None:
        offsets.delete(self.offsets, self.groups.get(event.group_id), event, turn.decision)

    def _forget_topic(self, event: events.TopicDeleted, turn: Turn) -> None:
        turn.decision.is_atomic = False
        offsets.forget_topic(self.offsets, event, turn.decision)

    def _check_retention(self, event: events.RetentionChecked, turn: Turn) -> None:
        turn.decision.is_atomic = False
        for group_id in event.group_ids:
            group = self.groups.get(group_id)
            if group is None or not offsets.expire(self.offsets, group, turn):
                continue
            if group.state is GroupState.EMPTY and not group.pending_joins:
                turn.decision.records.append(GroupRecord(group_id, None))

    # --------------------------------------------------------------------------- groups as a whole

    def _describe(self, event: events.DescribeRequested, turn: Turn) -> None:
        group = self.groups.get(event.group_id)
        body: Body = {"group_id": event.group_id, "group_state": GroupState.DEAD.value}
        if group is not None:
            body = _described(group)
        turn.decision.respond(event.token, body)

    def _list(self, event: events.ListRequested, turn: Turn) -> None:
        groups = [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state.value,
                "group_type": CLASSIC_TYPE,
            }
            for group in self.groups.values()
            if not event.states or group.state.value.lower() in event.states
            if not event.types or CLASSIC_TYPE in event.types
        ]
        turn.decision.respond(event.token, {"groups": groups})

    def _delete(self, event: events.DeleteRequested, turn: Turn) -> None:
        group = self.groups.get(event.group_id)
        code = ErrorCode.NONE
        if group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not GroupState.EMPTY:
            code = ErrorCode.NON_EMPTY_GROUP
        else:
            offsets.delete_all(self.offsets, event.group_id, turn.decision)
            turn.decision.records.append(GroupRecord(event.group_id, None))
        turn.decision.respond(event.token, {"group_id": event.group_id, "error_code": code})


def _end_join(group: ClassicGroup, event: events.JoinTimedOut, turn: Turn) -> None:
    rebalance.complete_join(group, turn)


def _described(group: ClassicGroup) -> Body:
    """Metadata and protocol are told of stable groups only; in a rebalance they are not agreed."""
    is_stable = group.state is GroupState.STABLE
    return {
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol_name or "") if is_stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata_for(group.protocol_name) if is_stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }
