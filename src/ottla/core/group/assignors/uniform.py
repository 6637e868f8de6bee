"""The `uniform` assignor, the default: a balanced assignment that moves few partitions.

All members have the same subscription
    Each member gets n or n + 1 partitions and keeps up to that many of its current ones. Members
    with more than n are the first to keep n + 1. Only the remaining partitions move: no other
    balanced assignment moves fewer.

Members have different subscriptions
    1. Each member keeps the current partitions it still subscribes to.
    2. Unassigned partitions go to the subscriber with the fewest partitions. Topics with few
       subscribers are assigned first.
    3. A partition moves to another subscriber as long as that one has at least two partitions less
       than its owner. Each move makes the assignment more balanced, so this terminates; afterwards
       no single move can improve it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace

from ottla.core.group.assignors.spec import (
    MemberSpec,
    TopicIdPartition,
    as_assignment,
    sorted_members,
)
from ottla.core.group.consumer_records import Assignment

Holdings = dict[str, list[TopicIdPartition]]


def assign_uniformly(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    ordered = sorted_members(members)
    holdings, free = _kept(members, ordered, partition_counts)
    if len({members[each].topic_ids for each in ordered}) <= 1:
        _fill_evenly(holdings, free)
    else:
        _fill_by_subscription(members, holdings, free)
    return {
        member_id: as_assignment(topic_partitions)
        for member_id, topic_partitions in holdings.items()
    }


def _kept(
    members: Mapping[str, MemberSpec], ordered: Iterable[str], partition_counts: Mapping[bytes, int]
) -> tuple[Holdings, list[TopicIdPartition]]:
    """Return the partitions each member keeps, and the unassigned ones of subscribed topics."""
    taken: set[TopicIdPartition] = set()
    holdings: Holdings = {}
    wanted: set[bytes] = set()
    for member_id in ordered:
        spec = members[member_id]
        wanted |= spec.topic_ids
        holdings[member_id] = kept = []
        for topic_id in sorted(spec.assigned):
            if topic_id not in spec.topic_ids:
                continue
            count = partition_counts.get(topic_id, 0)
            for partition in sorted(spec.assigned[topic_id]):
                if partition < count and (topic_id, partition) not in taken:
                    taken.add((topic_id, partition))
                    kept.append((topic_id, partition))
    free = [
        (topic_id, partition)
        for topic_id in sorted(wanted)
        for partition in range(partition_counts.get(topic_id, 0))
        if (topic_id, partition) not in taken
    ]
    return holdings, free


# -------------------------------------------------------------------------------- same subscription


def _fill_evenly(holdings: Holdings, free: list[TopicIdPartition]) -> None:
    if not holdings:
        return
    total = len(free) + sum(map(len, holdings.values()))
    quota, larger = divmod(total, len(holdings))
    for topic_partitions in holdings.values():
        if len(topic_partitions) > quota:
            allowed = quota + (larger > 0)
            larger -= larger > 0
            free += topic_partitions[allowed:]
            del topic_partitions[allowed:]
    free.sort(reverse=True)
    for topic_partitions in holdings.values():
        while len(topic_partitions) < quota:
            topic_partitions.append(free.pop())
    for topic_partitions in holdings.values():
        if free and len(topic_partitions) == quota:
            topic_partitions.append(free.pop())


# -------------------------------------------------------------------------- different subscriptions


def _fill_by_subscription(
    members: Mapping[str, MemberSpec], holdings: Holdings, free: list[TopicIdPartition]
) -> None:
    subscribers: dict[bytes, list[str]] = {}
    for member_id in holdings:
        for topic_id in members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    ordered = sorted(subscribers, key=lambda topic_id: (len(subscribers[topic_id]), topic_id))
    rank = {topic_id: index for index, topic_id in enumerate(ordered)}
    heaps = {topic_id: _by_load(subscribers[topic_id], holdings) for topic_id in subscribers}
    for topic_partition in sorted(
        free, key=lambda topic_partition: (rank[topic_partition[0]], topic_partition[1])
    ):
        holdings[_least_loaded(heaps[topic_partition[0]], holdings)].append(topic_partition)
    has_moved = True
    while has_moved:
        moved = [_even_out(holdings, topic_id, subscribers[topic_id]) for topic_id in ordered]
        has_moved = any(moved)


def _by_load(subscribers: list[str], holdings: Holdings) -> list[tuple[int, int, str]]:
    """Return a heap of (partition count, rank, member id)."""
    heap = [(len(holdings[each]), index, each) for index, each in enumerate(subscribers)]
    heapify(heap)
    return heap


def _least_loaded(heap: list[tuple[int, int, str]], holdings: Holdings) -> str:
    """Return the member with the fewest partitions.

    Counts only grow while partitions are being assigned, so an outdated entry can be corrected when
    it reaches the top of the heap.
    """
    while True:
        load, index, member_id = heap[0]
        actual = len(holdings[member_id])
        if load == actual:
            return member_id
        heapreplace(heap, (actual, index, member_id))


def _even_out(holdings: Holdings, topic_id: bytes, subscribers: list[str]) -> bool:
    """Move partitions of a topic until no move improves the balance; return whether any moved."""
    movable = {
        member_id: [
            topic_partition
            for topic_partition in holdings[member_id]
            if topic_partition[0] == topic_id
        ]
        for member_id in subscribers
    }
    has_moved = False
    while True:
        givers = [each for each in subscribers if movable[each]]
        if not givers:
            return has_moved
        most = max(givers, key=lambda each: len(holdings[each]))
        least = min(subscribers, key=lambda each: len(holdings[each]))
        if len(holdings[most]) - len(holdings[least]) < 2:
            return has_moved
        topic_partition = movable[most].pop()
        holdings[most].remove(topic_partition)
        holdings[least].append(topic_partition)
        movable[least].append(topic_partition)
        has_moved = True
