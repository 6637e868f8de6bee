"""The groups of one partition of the offsets topic.

Every group that has offsets is in the shard, if only as an empty group without a protocol type: a
"simple" group, which members can join later like any other group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Never

from ottla.base.errors import ErrorCode
from ottla.core.coordinator import Decision, Token
from ottla.core.group import events, offsets
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.consumer_group import ConsumerGroup
from ottla.core.group.consumer_rebalance import tombstones
from ottla.core.group.context import DecisionContext
from ottla.core.group.descriptions import described_classic, described_consumer, listed
from ottla.core.group.members import Members
from ottla.core.group.offset_store import OffsetStore
from ottla.core.group.records import (
    GroupRecord,
    GroupTopicRecord,
    OffsetRecord,
    decode_record,
    encode_record,
)
from ottla.core.group.registry import Group, Groups
from ottla.core.group.settings import GroupSettings
from ottla.core.group.topics import NoTopics, TopicsView

if TYPE_CHECKING:
    from ottla.wire.messages import consumer_group_describe, describe_groups
    from ottla.wire.messages.delete_groups import DeletableGroupResultDict
    from ottla.wire.messages.list_groups import ListGroupsResponseDict

ConfigsOf = Callable[[str], Mapping[str, int]]
"""Function that returns the dynamic configs of a group."""


def no_configs(group_id: str) -> Mapping[str, int]:
    return {}


class GroupShard:
    """The `Shard` of the group coordinator.

    Args:
        settings: The broker's settings for groups.
        topics: The cluster's topics; by default there are none.
        configs_of: The dynamic configs of a group.
    """

    def __init__(
        self,
        settings: GroupSettings,
        topics: TopicsView | None = None,
        configs_of: ConfigsOf = no_configs,
    ) -> None:
        self.settings = settings
        self._topics = topics or NoTopics()
        self._configs_of = configs_of
        self.groups = Groups()
        self.offsets = OffsetStore()
        self._members = Members(self.groups, self.offsets)
        self._deciders: Mapping[type, Callable[[Any, DecisionContext], None]] = {
            **self._members.deciders,
            events.CommitRequested: self._commit,
            events.OffsetsRequested: self._fetch,
            events.DescribeRequested: self._describe,
            events.ConsumerDescribeRequested: self._describe_consumer,
            events.DeleteRequested: self._delete,
            events.OffsetDeleteRequested: self._delete_offsets,
            events.ListRequested: self._list,
            events.RetentionChecked: self._check_retention,
            events.TopicDeleted: self._forget_topic,
        }

    # --------------------------------------------------------------------------- the Shard protocol

    def decide(self, event: Any, now_ms: int) -> Decision:
        decision = Decision()
        group_id = event.key
        configs = {} if group_id is None else self._configs_of(group_id)
        context = DecisionContext(now_ms, self.settings, decision, self._topics, configs)
        self._deciders[type(event)](event, context)
        return decision

    def apply(self, record: GroupTopicRecord, offset: int, producer_id: int) -> None:
        if isinstance(record, OffsetRecord):
            self.offsets.apply(record, offset, producer_id)
            if record.value is not None and record.group_id not in self.groups:
                self.groups[record.group_id] = ClassicGroup(record.group_id)
        elif isinstance(record, GroupRecord):
            self.groups.apply_classic(record)
        else:
            self.groups.apply_consumer(record)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        self.offsets.end_transaction(producer_id, commit=commit)

    def encode(self, record: GroupTopicRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record)

    def decode(self, key: bytes, value: bytes | None) -> GroupTopicRecord | None:
        return decode_record(key, value)

    def loaded(self, now_ms: int) -> Decision:
        decision = Decision()
        for group_id in self.offsets.group_ids():
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id)

        def context_for(group_id: str) -> DecisionContext:
            configs = self._configs_of(group_id)
            return DecisionContext(now_ms, self.settings, decision, self._topics, configs)

        self._members.loaded(context_for, self.settings.max_size)
        return decision

    def unload(self) -> list[Token[Never]]:
        waiting = self._members.waiting()
        self.groups.clear()
        return waiting

    def permissions_changed(self) -> None:
        """Have the next heartbeat of each group match the group's patterns again."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup) and group.patterns:
                group.check_topics_again()

    # -------------------------------------------------------------------------------------- offsets

    def _commit(self, event: events.CommitRequested, context: DecisionContext) -> None:
        offsets.commit(self.groups.get(event.group_id), event, context)

    def _fetch(self, event: events.OffsetsRequested, context: DecisionContext) -> None:
        group = self.groups.get(event.group_id)
        offsets.fetch(self.offsets, group, event, context.decision)

    def _delete_offsets(
        self, event: events.OffsetDeleteRequested, context: DecisionContext
    ) -> None:
        offsets.delete(self.offsets, self.groups.get(event.group_id), event, context.decision)

    def _forget_topic(self, event: events.TopicDeleted, context: DecisionContext) -> None:
        context.decision.is_atomic = False
        offsets.forget_topic(self.offsets, event, context.decision)

    def _check_retention(self, event: events.RetentionChecked, context: DecisionContext) -> None:
        context.decision.is_atomic = False
        for group_id in event.group_ids:
            group = self.groups.get(group_id)
            if group is None or not offsets.expire(self.offsets, group, context):
                continue
            if _is_empty(group) and not (isinstance(group, ClassicGroup) and group.pending_joins):
                _add_tombstones(group, context)

    # --------------------------------------------------------------------------------- whole groups

    def _describe(self, event: events.DescribeRequested, context: DecisionContext) -> None:
        # DescribeGroups covers only classic groups; ConsumerGroupDescribe describes the others.
        group = self.groups.get(event.group_id)
        body: describe_groups.DescribedGroupDict = {
            "group_id": event.group_id,
            "group_state": GroupState.DEAD.value,
        }
        if isinstance(group, ClassicGroup):
            body = described_classic(group)
        elif group is None:
            body["error_message"] = f"Group {event.group_id} not found."
        else:
            body["error_message"] = f"Group {event.group_id} is not a classic group."
        context.decision.respond(event.token, body)

    def _describe_consumer(
        self, event: events.ConsumerDescribeRequested, context: DecisionContext
    ) -> None:
        group = self.groups.get(event.group_id)
        if isinstance(group, ConsumerGroup):
            context.decision.respond(event.token, described_consumer(group, context))
            return
        reason = "not found" if group is None else "is not a consumer group"
        body: consumer_group_describe.DescribedGroupDict = {
            "group_id": event.group_id,
            "error_code": ErrorCode.GROUP_ID_NOT_FOUND,
            "error_message": f"Group {event.group_id} {reason}.",
        }
        context.decision.respond(event.token, body)

    def _list(self, event: events.ListRequested, context: DecisionContext) -> None:
        groups = []
        for group in self.groups.values():
            body = listed(group)
            has_state = not event.states or body["group_state"].lower() in event.states
            if has_state and (not event.types or body["group_type"] in event.types):
                groups.append(body)
        response: ListGroupsResponseDict = {"groups": groups}
        context.decision.respond(event.token, response)

    def _delete(self, event: events.DeleteRequested, context: DecisionContext) -> None:
        group = self.groups.get(event.group_id)
        code = ErrorCode.NONE
        if group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif not _is_empty(group):
            code = ErrorCode.NON_EMPTY_GROUP
        else:
            offsets.delete_all(self.offsets, event.group_id, context.decision)
            _add_tombstones(group, context)
        result: DeletableGroupResultDict = {"group_id": event.group_id, "error_code": code}
        context.decision.respond(event.token, result)


def _is_empty(group: Group) -> bool:
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is GroupState.EMPTY


def _add_tombstones(group: Group, context: DecisionContext) -> None:
    if isinstance(group, ConsumerGroup):
        context.decision.records += tombstones(group)
    else:
        context.decision.records.append(GroupRecord(group.group_id, None))
