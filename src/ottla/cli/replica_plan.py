"""Where replicas should go: what `kafka-reassign-partitions --generate` and `ottla cluster
decommission` propose. Pure.

Brokers that hold the least come first; no two replicas of a partition are on one broker, and none
in a rack that has one already while there is another rack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition

Racks = Mapping[int, str | None]
"""The rack of each broker that may be used; None: unknown, or not to be looked at."""
Assignment = Mapping[TopicPartition, tuple[int, ...]]


def spread(
    sizes: Mapping[TopicPartition, int], racks: Racks
) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas for each partition, as many as `sizes` says; leaders and replicas are spread."""
    leaders: Counter[int] = Counter()
    held: Counter[int] = Counter()
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for key, size in sizes.items():
        if size > len(racks):
            raise UserError(f"{key} has {size} replicas, and there are {len(racks)} brokers.")
        chosen = [min(racks, key=lambda broker: (leaders[broker], held[broker], broker))]
        leaders[chosen[0]] += 1
        held[chosen[0]] += 1
        while len(chosen) < size:
            chosen.append(_next(chosen, racks, held))
            held[chosen[-1]] += 1
        plan[key] = tuple(chosen)
    return plan


def without(
    broker: int, assignment: Assignment, racks: Racks
) -> dict[TopicPartition, tuple[int, ...]]:
    """New replicas for each partition that has one on this broker: another broker in its place."""
    others = {each: rack for each, rack in racks.items() if each != broker}
    held = Counter(each for replicas in assignment.values() for each in replicas)
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for key, replicas in assignment.items():
        if broker not in replicas:
            continue
        kept = [each for each in replicas if each != broker]
        if not set(others) - set(kept):
            raise UserError(
                f"{key} has {len(replicas)} replicas, and there is no other broker for the one on "
                f"broker {broker}; add a broker, or lower the replication factor."
            )
        chosen = _next(kept, others, held)
        held[chosen] += 1
        plan[key] = tuple(chosen if each == broker else each for each in replicas)
    return plan


def _next(chosen: Sequence[int], racks: Racks, held: Counter[int]) -> int:
    used = {racks.get(each) for each in chosen}
    free = [broker for broker in racks if broker not in chosen]
    elsewhere = [broker for broker in free if racks[broker] not in used]
    return min(elsewhere or free, key=lambda broker: (held[broker], broker))
