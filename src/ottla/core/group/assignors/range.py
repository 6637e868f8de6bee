"""The `range` assignor: one contiguous range of each topic's partitions per subscriber.

Members with the same subscriptions get the same partition numbers of all topics that have the same
partition count. Records with the same key therefore end up at the same member, as joins require. If
a topic's partitions do not divide evenly, the first members get one more. Current assignments are
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.core.group.assignors.spec import MemberSpec, sorted_members
from ottla.core.group.consumer_records import Assignment


def assign_ranges(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    ordered = sorted_members(members)
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in ordered}
    for topic_id in sorted(partition_counts):
        subscribers = [each for each in ordered if topic_id in members[each].topic_ids]
        if not subscribers:
            continue
        size, larger = divmod(partition_counts[topic_id], len(subscribers))
        start = 0
        for index, member_id in enumerate(subscribers):
            end = start + size + (index < larger)
            if end > start:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)
