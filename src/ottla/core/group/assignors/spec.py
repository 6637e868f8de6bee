"""What an assignor is told of a member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.core.group.consumer_records import Assignment

Place = tuple[bytes, int]
"""A partition: topic id, number."""


class MemberSpec(NamedTuple):
    topic_ids: frozenset[bytes]
    """What it subscribes to; topics that do not exist are left out."""
    assigned: Assignment
    """What it was to have so far."""
    instance_id: str | None = None


def in_order(members: Mapping[str, MemberSpec]) -> list[str]:
    """Static members first, by their instance ids, which survive a restart; then the others."""

    def rank(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, instance_id or "", member_id

    return sorted(members, key=rank)


def as_assignment(places: Iterable[Place]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in sorted(places):
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}
