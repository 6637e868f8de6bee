"""Search for hanging transactions: open on a partition, with no coordinator that will end them.

A transaction is open on a partition until its commit or abort marker is written. It hangs if it has
been open for longer than the maximum transaction timeout, and no coordinator will write the marker:
no transactional ID has the producer ID, or its transaction does not include the partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.base.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import Admin, ProducerState

PARTITIONS_AT_ONCE = 500


@dataclass(frozen=True)
class OpenTransaction:
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int
    duration_minutes: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def find_hanging(
    admin: Admin,
    partitions: list[TopicPartition],
    *,
    broker: int | None,
    max_timeout_ms: int,
    now_ms: int,
) -> list[OpenTransaction]:
    """Return the hanging transactions on the given partitions.

    Args:
        admin: A client that is connected to the cluster.
        partitions: The partitions to search.
        broker: ID of the broker whose producer states to use, or None for the leaders.
        max_timeout_ms: Longest time that a transaction may be open.
        now_ms: The current time.
    """
    candidates: list[OpenTransaction] = []
    for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
        some = partitions[start : start + PARTITIONS_AT_ONCE]
        producers = admin.describe_producers(*some, broker=broker)
        candidates += open_too_long(producers, max_timeout_ms, now_ms)
    if not candidates:
        return []
    producer_ids = sorted({each.producer_id for each in candidates})
    listed = admin.list_transactions(producer_ids=producer_ids).values()
    described = admin.describe_transactions(
        *(each.transactional_id for each in listed), return_errors=True
    )
    awaited = {
        each.producer_id: set(described[each.transactional_id].partitions)
        for each in listed
        if each.transactional_id in described
    }
    return [
        each
        for each in candidates
        if each.topic_partition not in awaited.get(each.producer_id, set())
    ]


def open_too_long(
    producers: Mapping[TopicPartition, Iterable[ProducerState]], max_timeout_ms: int, now_ms: int
) -> Iterator[OpenTransaction]:
    """Yield the transactions whose last record is older than `max_timeout_ms`."""
    for (topic, partition), states in producers.items():
        for state in states:
            open_ms = now_ms - state.last_timestamp
            if state.current_txn_start_offset is not None and open_ms > max_timeout_ms:
                yield OpenTransaction(
                    topic,
                    partition,
                    state.producer_id,
                    state.producer_epoch,
                    -1 if state.coordinator_epoch is None else state.coordinator_epoch,
                    state.current_txn_start_offset,
                    state.last_timestamp,
                    open_ms // 60_000,
                )
