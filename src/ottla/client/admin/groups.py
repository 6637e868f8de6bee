"""Groups: list, describe, delete, and remove members.

    ListGroups 0+ (by state: 4+, by type: 5+)       to every broker
    ConsumerGroupDescribe 0+, DescribeGroups 0+     to the groups' coordinators
    DeleteGroups 0+, LeaveGroup 3+                  to the groups' coordinators

Only its coordinator knows whether a group uses the consumer protocol (KIP-848) or the classic one.
So groups are described with the new request first, and those not found with the old one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.base import notebook
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.admin.dispatch import (
    AtBrokers,
    AtCoordinators,
    Listing,
    Results,
    dispatch,
    raise_for,
)
from ottla.client.cluster import Cluster, CoordinatorType
from ottla.client.consumer.protocol import decode_assignment
from ottla.client.errors import ClientError, UnsupportedVersion, error_for
from ottla.client.metadata import Node
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages import consumer_group_describe
    from ottla.wire.messages import describe_groups as classic_groups
    from ottla.wire.messages.leave_group import MemberIdentityDict, MemberResponse
    from ottla.wire.messages.list_groups import ListedGroup

CLASSIC = "classic"
CONSUMER = "consumer"
CONSUMER_PROTOCOL = "consumer"
"""Protocol type of consumers; Connect workers and others have their own."""
DEAD = "Dead"
NO_EPOCH = -1


class GroupListing(NamedTuple):
    """Group of a cluster."""

    group_id: str
    """ID of the group."""
    type: str
    """Type of the group: `classic`, `consumer`, `share` or `streams`."""
    state: str
    """State of the group; empty if the broker does not report it (before Kafka 2.6)."""
    protocol_type: str
    """Protocol of the members: `consumer`, `connect`, or empty."""
    coordinator: int
    """Broker ID of the coordinator."""


@dataclass(frozen=True)
class MemberDescription:
    """Member of a group."""

    member_id: str
    """ID that the coordinator or the member has chosen."""
    group_instance_id: str | None
    """ID of a static member, or None."""
    client_id: str
    """Client ID of the member."""
    host: str
    """Host that the member connects from."""
    assignment: tuple[TopicPartition, ...]
    """Partitions that the member owns."""
    target_assignment: tuple[TopicPartition, ...] | None = None
    """Assignment that the member is moving to. This and the fields below are None in classic
    groups."""
    member_epoch: int | None = None
    """Epoch of the member."""
    is_upgraded: bool | None = None
    """Whether the member uses the consumer protocol; None if the broker does not report it."""
    rack_id: str | None = None
    """Rack of the member."""
    subscribed_topics: tuple[str, ...] | None = None
    """Topics that the member is subscribed to."""
    subscribed_regex: str | None = None
    """Pattern that the member is subscribed to."""


@dataclass(frozen=True)
class GroupDescription:
    """Group with its members."""

    group_id: str
    """ID of the group."""
    type: str
    """Type of the group: `classic`, `consumer`, `share` or `streams`."""
    state: str
    """State of the group, such as `Stable` or `Empty`."""
    protocol_type: str
    """Protocol of the members: `consumer`, `connect`, or empty."""
    assignor: str
    """Assignor that the group uses."""
    members: tuple[MemberDescription, ...]
    """The members."""
    coordinator: Node | None
    """Broker of the coordinator, or None if it is unknown."""
    group_epoch: int | None = None
    """Epoch of the group. This and the next field are None in classic groups."""
    target_assignment_epoch: int | None = None
    """Epoch of the target assignment."""

    @property
    def is_simple(self) -> bool:
        """Whether the group only stores offsets, committed by clients that are not members."""
        return self.type == CLASSIC and not self.protocol_type

    def _repr_html_(self) -> str:
        headings = ("member", "client", "host", "assignment")
        rows = [
            (each.group_instance_id or each.member_id, each.client_id, each.host, each.assignment)
            for each in self.members
        ]
        caption = f"Group {self.group_id}, {self.type}, {self.state}"
        return notebook.table(headings, rows, caption=caption)


async def list_groups(
    cluster: Cluster, brokers: Iterable[int], *, states: Iterable[str], types: Iterable[str]
) -> Listing[str, GroupListing]:
    wanted_states, wanted_types = list(states), list(types)
    min_version = 5 if wanted_types else 4 if wanted_states else 0

    async def ask(node: int, keys: list[int]) -> dict[int, list[GroupListing] | ClientError]:
        request = rpc.list_groups(states_filter=wanted_states, types_filter=wanted_types)
        response = await cluster.call(request, node=node, min_version=min_version)
        raise_for(response.error_code)
        return {node: [_listing(entry, node) for entry in response.groups]}

    lookup: AtBrokers[int] = AtBrokers(cluster, lambda broker: broker)
    listed = (await dispatch(lookup, brokers, ask, what="listing groups")).checked(False)
    found = {each.group_id: each for listings in listed.values() for each in listings}
    return Listing(sorted(found.items()))


def _listing(entry: ListedGroup, node: int) -> GroupListing:
    kind = (entry.group_type or CLASSIC).lower()
    return GroupListing(entry.group_id, kind, entry.group_state, entry.protocol_type, node)


# ------------------------------------------------------------------------------------ describe


async def describe_groups(
    cluster: Cluster, group_ids: Iterable[str]
) -> Results[str, GroupDescription]:
    async def ask(node: int, ids: list[str]) -> dict[str, GroupDescription | ClientError]:
        try:
            found = await _describe_consumer(cluster, node, ids)
        except UnsupportedVersion:  # before Kafka 3.7
            found = {}
        rest = [each for each in ids if each not in found]
        if rest:
            found |= await _describe_classic(cluster, node, rest)
        return found

    lookup = AtCoordinators(cluster, CoordinatorType.GROUP)
    return await dispatch(lookup, group_ids, ask, what="describing groups")


async def _describe_consumer(
    cluster: Cluster, node: int, ids: list[str]
) -> dict[str, GroupDescription | ClientError]:
    """Describe the groups that use the consumer protocol.

    Groups that are not found or have another type are left out; other errors are returned."""
    response = await cluster.call(rpc.consumer_group_describe(group_ids=ids), node=node)
    found: dict[str, GroupDescription | ClientError] = {}
    for entry in response.groups:
        if entry.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            continue
        if entry.error_code:
            found[entry.group_id] = error_for(entry.error_code, entry.error_message)
            continue
        found[entry.group_id] = GroupDescription(
            entry.group_id,
            CONSUMER,
            entry.group_state,
            CONSUMER_PROTOCOL,
            entry.assignor_name,
            tuple(_consumer_member(member) for member in entry.members),
            cluster.metadata.nodes.get(node),
            entry.group_epoch,
            entry.assignment_epoch,
        )
    return found


def _consumer_member(entry: consumer_group_describe.Member) -> MemberDescription:
    return MemberDescription(
        entry.member_id,
        entry.instance_id,
        entry.client_id,
        entry.client_host,
        _topic_partitions(entry.assignment),
        _topic_partitions(entry.target_assignment),
        entry.member_epoch,
        None if entry.member_type < 0 else entry.member_type == 1,
        entry.rack_id,
        tuple(entry.subscribed_topic_names),
        entry.subscribed_topic_regex or None,
    )


def _topic_partitions(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


async def _describe_classic(
    cluster: Cluster, node: int, ids: list[str]
) -> dict[str, GroupDescription | ClientError]:
    response = await cluster.call(rpc.describe_groups(groups=ids), node=node)
    found: dict[str, GroupDescription | ClientError] = {}
    for entry in response.groups:
        not_found = entry.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        if entry.error_code and not not_found:
            found[entry.group_id] = error_for(entry.error_code, entry.error_message)
        elif not_found or entry.group_state == DEAD:  # brokers before Kafka 4 return Dead
            found[entry.group_id] = error_for(
                ErrorCode.GROUP_ID_NOT_FOUND, f"group {entry.group_id!r} does not exist"
            )
        else:
            is_consumers = entry.protocol_type == CONSUMER_PROTOCOL
            found[entry.group_id] = GroupDescription(
                entry.group_id,
                CLASSIC,
                entry.group_state,
                entry.protocol_type,
                entry.protocol_data,
                tuple(_classic_member(member, is_consumers) for member in entry.members),
                cluster.metadata.nodes.get(node),
            )
    return found


def _classic_member(
    entry: classic_groups.DescribedGroupMember, is_consumer: bool
) -> MemberDescription:
    return MemberDescription(
        entry.member_id,
        entry.group_instance_id,
        entry.client_id,
        entry.client_host,
        _assigned(bytes(entry.member_assignment)) if is_consumer else (),
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode an assignment; one that is malformed counts as empty, as clients define it."""
    try:
        return decode_assignment(data)
    except ValueError:
        return ()


# -------------------------------------------------------------------------------- delete, leave


async def delete_groups(cluster: Cluster, group_ids: Iterable[str]) -> Results[str, None]:
    async def ask(node: int, ids: list[str]) -> dict[str, ClientError | None]:
        response = await cluster.call(rpc.delete_groups(groups_names=ids), node=node)
        return {
            entry.group_id: _failure(entry.error_code, entry.group_id) for entry in response.results
        }

    lookup = AtCoordinators(cluster, CoordinatorType.GROUP)
    return await dispatch(lookup, group_ids, ask, what="deleting groups")


def _failure(code: int, group_id: str) -> ClientError | None:
    if not code:
        return None
    texts = {
        ErrorCode.NON_EMPTY_GROUP: f"group {group_id!r} has active members",
        ErrorCode.GROUP_ID_NOT_FOUND: f"group {group_id!r} does not exist",
    }
    return error_for(code, texts.get(error_for(code).code))


async def remove_members(
    cluster: Cluster,
    group_id: str,
    instance_ids: Iterable[str],
    *,
    member_ids: Iterable[str] = (),
    reason: str | None,
) -> Results[str, None]:
    """Remove static members by `group.instance.id`, and others by member ID."""
    named = [("", each) for each in instance_ids] + [(each, None) for each in member_ids]
    members: list[MemberIdentityDict] = [
        {"member_id": member, "group_instance_id": instance, "reason": reason}
        for member, instance in named
    ]

    async def ask(node: int, ids: list[str]) -> dict[str, Sequence[MemberResponse] | ClientError]:
        request = rpc.leave_group(group_id=group_id, members=members)
        response = await cluster.call(request, node=node, min_version=3)
        raise_for(response.error_code)
        return {group_id: response.members}

    lookup = AtCoordinators(cluster, CoordinatorType.GROUP)
    responses = await dispatch(lookup, [group_id], ask, what=f"removing members of {group_id}")
    results: Results[str, None] = Results()
    for entry in responses.checked(False)[group_id]:
        name = entry.group_instance_id or entry.member_id
        if entry.error_code:
            results.errors[name] = error_for(entry.error_code)
        else:
            results[name] = None
    return results
