"""Range and round-robin assignors, which distribute evenly and depend only on the members' order.

Static members come first, ordered by `group.instance.id`; the others follow, ordered by member ID.
A static member thus keeps its place when it restarts and gets a new member ID."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.types import TopicPartition
from ottla.client.consumer.protocol import MemberSubscription

Assignment = dict[str, list[TopicPartition]]


def assign_range(
    counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> Assignment:
    """Assign a contiguous range of each topic; the first members get one more if uneven."""
    assignment: Assignment = {member: [] for member in members}
    ordered = sorted_members(members)
    for topic in sorted(counts):
        subscribers = [member for member in ordered if topic in members[member].topics]
        if not subscribers:
            continue
        share, more = divmod(counts[topic], len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + share + (index < more)
            assignment[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assignment


def assign_round_robin(
    counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> Assignment:
    """Assign each partition to the next member that subscribes to its topic."""
    assignment: Assignment = {member: [] for member in members}
    ordered = sorted_members(members)
    subscribed = {topic for each in members.values() for topic in each.topics}
    index = 0
    for topic in sorted(subscribed & counts.keys()):
        for partition in range(counts[topic]):
            while topic not in members[ordered[index % len(ordered)]].topics:
                index += 1
            assignment[ordered[index % len(ordered)]].append(TopicPartition(topic, partition))
            index += 1
    return assignment


def sorted_members(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Return the member IDs: static members by instance ID, then the others by member ID."""
    return sorted(
        members,
        key=lambda member: (
            members[member].instance_id is None,
            members[member].instance_id or "",
            member,
        ),
    )
