"""Descriptions of groups: DescribeGroups, ConsumerGroupDescribe and ListGroups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.consumer_group import NO_PARTITIONS, ConsumerGroup, ConsumerMember
from ottla.core.group.consumer_rebalance import Plan
from ottla.core.group.consumer_records import Assignment
from ottla.core.group.context import DecisionContext
from ottla.core.group.embedded_protocol import CONSUMER_PROTOCOL_TYPE
from ottla.core.group.registry import Group
from ottla.core.group.topics import TopicsView

if TYPE_CHECKING:
    from ottla.wire.messages import consumer_group_describe, describe_groups
    from ottla.wire.messages.list_groups import ListedGroupDict

CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"
CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def listed(group: Group) -> ListedGroupDict:
    if isinstance(group, ConsumerGroup):
        protocol_type, group_type = CONSUMER_PROTOCOL_TYPE, CONSUMER_TYPE
    else:
        protocol_type, group_type = group.protocol_type or "", CLASSIC_TYPE
    return {
        "group_id": group.group_id,
        "protocol_type": protocol_type,
        "group_state": group.state.value,
        "group_type": group_type,
    }


def described_classic(group: ClassicGroup) -> describe_groups.DescribedGroupDict:
    """Describe a classic group.

    Protocol and metadata are included only if it is Stable: they are undecided during a rebalance.
    """
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


def described_consumer(
    group: ConsumerGroup, context: DecisionContext
) -> consumer_group_describe.DescribedGroupDict:
    return {
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": Plan.of(group).choose_assignor(context),
        "members": [
            _described_member(
                member, group.targets.get(member.member_id, NO_PARTITIONS), context.topics
            )
            for member in group.members.values()
        ],
    }


def _described_member(
    member: ConsumerMember, target: Assignment, topics: TopicsView
) -> consumer_group_describe.MemberDict:
    metadata = member.metadata
    return {
        "member_id": member.member_id,
        "instance_id": metadata.instance_id,
        "rack_id": metadata.rack_id,
        "member_epoch": member.epoch,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "subscribed_topic_names": list(metadata.topics),
        "subscribed_topic_regex": metadata.pattern or None,
        "assignment": {"topic_partitions": _with_names(member.assigned, topics)},
        "target_assignment": {"topic_partitions": _with_names(target, topics)},
        "member_type": CONSUMER_MEMBER if metadata.classic is None else CLASSIC_MEMBER,
    }


def _with_names(
    assignment: Assignment, topics: TopicsView
) -> list[consumer_group_describe.TopicPartitionsDict]:
    """Add topic names to an assignment; deleted topics are left out."""
    known = topics.topics_by_id
    return [
        {
            "topic_id": topic_id,
            "topic_name": known[topic_id].name,
            "partitions": sorted(partitions),
        }
        for topic_id, partitions in assignment.items()
        if topic_id in known
    ]
