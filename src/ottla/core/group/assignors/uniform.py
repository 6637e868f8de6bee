"""`uniform`, the default: as even as can be, and as much as can be stays where it is.

All subscribe to the same topics
    Members have n or n + 1 partitions. Each keeps what it has, up to that; those that have more
    than n are the first to keep n + 1. Only the rest moves: no assignment as even moves less.

They subscribe to different topics
    1. Each keeps what it has and still subscribes to.
    2. What is free goes, topics with few subscribers first, to the subscriber that has least.
    3. While a partition can go from its member to a subscriber of its topic that has at least two
       less, it does. Each such step makes the loads more even, so this ends; then no single move
       would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace

from ottla.core.group.assignors.spec import MemberSpec, Place, as_assignment, in_order
from ottla.core.group.consumer_records import Assignment

Holdings = dict[str, list[Place]]


def assign_uniformly(
    members: Mapping[str, MemberSpec], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    ordered = in_order(members)
    holdings, free = _kept(members, ordered, partition_counts)
    if len({members[each].topic_ids for each in ordered}) <= 1:
        _fill_evenly(holdings, free)
    else:
        _fill_by_subscription(members, holdings, free)
    return {member_id: as_assignment(places) for member_id, places in holdings.items()}


def _kept(
    members: Mapping[str, MemberSpec], ordered: Iterable[str], partition_counts: Mapping[bytes, int]
) -> tuple[Holdings, list[Place]]:
    """What each has and may keep; and what nobody has, of topics that somebody subscribes to."""
    taken: set[Place] = set()
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


# ----------------------------------------------------------------------- all subscribe to the same


def _fill_evenly(holdings: Holdings, free: list[Place]) -> None:
    if not holdings:
        return
    total = len(free) + sum(map(len, holdings.values()))
    quota, larger = divmod(total, len(holdings))
    for places in holdings.values():
        if len(places) > quota:
            allowed = quota + (larger > 0)
            larger -= larger > 0
            free += places[allowed:]
            del places[allowed:]
    free.sort(reverse=True)
    for places in holdings.values():
        while len(places) < quota:
            places.append(free.pop())
    for places in holdings.values():
        if free and len(places) == quota:
            places.append(free.pop())


# ------------------------------------------------------------------- they subscribe to different


def _fill_by_subscription(
    members: Mapping[str, MemberSpec], holdings: Holdings, free: list[Place]
) -> None:
    subscribers: dict[bytes, list[str]] = {}
    for member_id in holdings:
        for topic_id in members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    ordered = sorted(subscribers, key=lambda topic_id: (len(subscribers[topic_id]), topic_id))
    rank = {topic_id: index for index, topic_id in enumerate(ordered)}
    heaps = {topic_id: _by_load(subscribers[topic_id], holdings) for topic_id in subscribers}
    for place in sorted(free, key=lambda place: (rank[place[0]], place[1])):
        holdings[_least_loaded(heaps[place[0]], holdings)].append(place)
    has_moved = True
    while has_moved:
        moved = [_even_out(holdings, topic_id, subscribers[topic_id]) for topic_id in ordered]
        has_moved = any(moved)


def _by_load(subscribers: list[str], holdings: Holdings) -> list[tuple[int, int, str]]:
    """A heap of (load, place in the order, member)."""
    heap = [(len(holdings[each]), index, each) for index, each in enumerate(subscribers)]
    heapify(heap)
    return heap


def _least_loaded(heap: list[tuple[int, int, str]], holdings: Holdings) -> str:
    """Loads only grow while what is free is given away: an entry that is behind is put right when
    it comes up."""
    while True:
        load, index, member_id = heap[0]
        actual = len(holdings[member_id])
        if load == actual:
            return member_id
        heapreplace(heap, (actual, index, member_id))


def _even_out(holdings: Holdings, topic_id: bytes, subscribers: list[str]) -> bool:
    """Move partitions of one topic until that makes nothing more even. Whether any moved."""
    movable = {
        member_id: [place for place in holdings[member_id] if place[0] == topic_id]
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
        place = movable[most].pop()
        holdings[most].remove(place)
        holdings[least].append(place)
        movable[least].append(place)
        has_moved = True
