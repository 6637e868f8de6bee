"""Range and round robin: even shares, by the members' order alone.

The order is by `group.instance.id`, then by member id: a static member keeps its place through
restarts, which give it a new member id."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.base.types import TopicPartition
from ottla.client.consumer.protocol import MemberSubscription

Assignment = dict[str, list[TopicPartition]]


def assign_range(
    counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> Assignment:
    """Of each topic, the first members get one partition more if it does not divide evenly."""
    assignment: Assignment = {member: [] for member in members}
    ordered = in_order(members)
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
    """Each partition to the next member that subscribes to its topic."""
    assignment: Assignment = {member: [] for member in members}
    ordered = in_order(members)
    subscribed = {topic for each in members.values() for topic in each.topics}
    turn = 0
    for topic in sorted(subscribed & counts.keys()):
        for partition in range(counts[topic]):
            while topic not in members[ordered[turn % len(ordered)]].topics:
                turn += 1
            assignment[ordered[turn % len(ordered)]].append(TopicPartition(topic, partition))
            turn += 1
    return assignment


def in_order(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Static members first, by their instance; the others by their member id."""
    return sorted(
        members,
        key=lambda member: (
            members[member].instance_id is None,
            members[member].instance_id or "",
            member,
        ),
    )
