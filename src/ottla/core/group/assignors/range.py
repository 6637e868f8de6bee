"""`range`: the partitions of each topic in as many runs as it has subscribers, in order.

Members that subscribe to the same topics get the same partitions of each, where those have the same
number of them: what is keyed alike ends up at the same member, as joins need it. The first members
get one more where the numbers do not divide. What members had before does not count."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.core.group.assignors.spec import MemberSpec, in_order
from ottla.core.group.consumer_records import Assignment


def assign_ranges(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    ordered = in_order(members)
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
