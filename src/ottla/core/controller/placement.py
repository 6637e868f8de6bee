"""Replica placement: Kafka's striping, rack-aware if all racks are known.

Goals, in order of priority: spread leaders evenly over brokers; spread the other replicas of one
broker's partitions over all other brokers; put no two replicas of a partition in one rack until
every rack has one.

Brokers form a ring. The first replica of partition p is at `start_index + p`. Replica j follows at
a distance of 1 + (shift + j) modulo (ring size - 1). The shift grows by one each time the first
replica completes a round, so that neighbouring partitions have different followers. With racks, the
ring is ordered so that neighbours are in different racks, and brokers whose rack already has a
replica are skipped.

Racks are ignored if any broker has none. The start index and the initial shift are inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.base.cluster import BrokerRegistration
from ottla.base.errors import ErrorCode, KafkaError


class Stripe(NamedTuple):
    """The starting point of a topic's replica assignment."""

    start_index: int = 0
    shift: int = 0


def assign_replicas(
    brokers: Sequence[BrokerRegistration],
    partition_count: int,
    replication_factor: int,
    stripe: Stripe,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """Place the replicas of consecutive partitions.

    Args:
        brokers: The live brokers.
        partition_count: The number of partitions to place.
        replication_factor: The number of replicas of each partition.
        stripe: The starting point on the ring.
        first_partition: The index of the first partition to place.

    Returns:
        The replicas of each partition, the preferred leader first.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR if there are too few brokers.
    """
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): the target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are available.",
        )
    ring = _Ring(brokers)
    partitions = range(first_partition, first_partition + partition_count)
    return [ring.replicas(partition, replication_factor, stripe) for partition in partitions]


class _Ring:
    def __init__(self, brokers: Sequence[BrokerRegistration]) -> None:
        known = all(broker.rack is not None for broker in brokers)
        self._racks = {broker.id: (known and broker.rack) or "" for broker in brokers}
        self._rack_count = len(set(self._racks.values()))
        self._brokers = alternate_racks(self._racks)

    def replicas(self, partition: int, replication_factor: int, stripe: Stripe) -> tuple[int, ...]:
        size = len(self._brokers)
        first = (partition + stripe.start_index) % size
        shift = (stripe.shift + partition // size) * self._rack_count
        chosen = [self._brokers[first]]
        step = 0
        while len(chosen) < replication_factor:
            broker = self._brokers[self._index(first, shift + step)]
            step += 1
            if self._is_next(broker, chosen):
                chosen.append(broker)
        return tuple(chosen)

    def _index(self, first: int, distance: int) -> int:
        size = len(self._brokers)
        return (first + 1 + distance % (size - 1)) % size

    def _is_next(self, broker: int, chosen: list[int]) -> bool:
        if broker in chosen:
            return False
        used = {self._racks[id] for id in chosen}
        return self._racks[broker] not in used or len(used) == self._rack_count


def alternate_racks(racks: dict[int, str]) -> list[int]:
    """Order brokers so that neighbours are in different racks, as far as possible.

    The result has the first broker of each rack, then the second of each, and so on.
    """
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def check_manual_assignment(
    replicas: Sequence[int], known: Sequence[BrokerRegistration], expected_count: int | None
) -> None:
    """Validate the replicas that a client chose for one partition.

    Args:
        replicas: The broker ids of the replicas.
        known: All registered brokers.
        expected_count: The required number of replicas, or None for any number.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT if the assignment is not valid.
    """
    if not replicas:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    duplicate = next((id for id in replicas if replicas.count(id) > 1), None)
    if duplicate is not None:
        raise _invalid(
            f"The manual partition assignment includes broker {duplicate} more than once."
        )
    ids = {broker.id for broker in known}
    missing = next((id for id in replicas if id not in ids), None)
    if missing is not None:
        raise _invalid(
            f"The manual partition assignment includes broker {missing}, but no such broker is "
            f"registered."
        )
    if expected_count is not None and len(replicas) != expected_count:
        raise _invalid(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            f"replica(s), but other partitions of the topic have {expected_count}."
        )
    if all(broker.fenced for broker in known if broker.id in replicas):
        raise _invalid("All brokers of the manual partition assignment are fenced.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
