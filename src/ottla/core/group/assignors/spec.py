"""Input of the assignors: the subscription and current target assignment of each member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.core.group.consumer_records import Assignment

TopicIdPartition = tuple[bytes, int]
"""A partition, as (topic id, index)."""


class MemberSpec(NamedTuple):
    topic_ids: frozenset[bytes]
    """The topics that the member subscribes to; topics that do not exist are left out."""
    assigned: Assignment
    """The member's current target assignment."""
    instance_id: str | None = None


def sorted_members(members: Mapping[str, MemberSpec]) -> list[str]:
    """Return member ids in a stable order: static members by instance id, then the others.

    Instance ids survive a restart, member ids do not.
    """

    def rank(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=rank)


def as_assignment(topic_partitions: Iterable[TopicIdPartition]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in sorted(topic_partitions):
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}
