"""Replica placement for `kafka-reassign-partitions --generate` and `ottla cluster decommission`.

Replicas go to the brokers with the fewest replicas. No two replicas of a partition share a broker,
and they share a rack only if all racks have one. The functions are pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition

Racks = Mapping[int, str | None]
"""The rack of each usable broker, or None if it is unknown or to be ignored."""
Assignment = Mapping[TopicPartition, tuple[int, ...]]


def spread(
    sizes: Mapping[TopicPartition, int], racks: Racks
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return replicas for each partition, with leaders and replicas spread evenly over brokers.

    Args:
        sizes: Replication factor of each partition.
        racks: The usable brokers and their racks.

    Raises:
        UserError: A replication factor is larger than the number of brokers.
    """
    leaders: Counter[int] = Counter()
    held: Counter[int] = Counter()
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for key, size in sizes.items():
        if size > len(racks):
            raise UserError(
                f"Partition {key} has {size} replicas, but only {len(racks)} brokers are "
                "available. Add brokers to --broker-list."
            )
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
    """Return the new replicas of all partitions on `broker`, with another broker in its place.

    Raises:
        UserError: A partition already has replicas on all other brokers.
    """
    others = {each: rack for each, rack in racks.items() if each != broker}
    held = Counter(each for replicas in assignment.values() for each in replicas)
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for key, replicas in assignment.items():
        if broker not in replicas:
            continue
        kept = [each for each in replicas if each != broker]
        if not set(others) - set(kept):
            raise UserError(
                f"Partition {key} has {len(replicas)} replicas, and no other broker is available "
                f"for the replica on broker {broker}. Add a broker or lower the replication factor."
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
