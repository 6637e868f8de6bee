"""Transactions: list, describe, abort a hanging one, fence a producer.

ListTransactions 0+ (by duration: 1+, by pattern: 2+)   to every broker
DescribeTransactions 0+, InitProducerId 0+              to the coordinators
WriteTxnMarkers 1+                                      to the partition's leader"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.admin.dispatch import (
    AtBrokers,
    AtCoordinators,
    AtLeaders,
    Results,
    dispatch,
    raise_for,
)
from ottla.client.cluster import Cluster, CoordinatorType
from ottla.client.errors import ClientError, InvalidConfig, error_for
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages.write_txn_markers import WritableTxnMarkerDict

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FENCING_TIMEOUT_MS = 60_000


class TransactionListing(NamedTuple):
    """Transactional ID of a cluster."""

    transactional_id: str
    """The transactional ID."""
    producer_id: int
    """ID of its producer."""
    state: str
    """State of its transaction, such as `Ongoing` or `CompleteCommit`."""
    coordinator: int
    """Broker ID of the coordinator."""


@dataclass(frozen=True)
class TransactionDescription:
    """Transactional ID with its transaction."""

    transactional_id: str
    """The transactional ID."""
    coordinator: int
    """Broker ID of the coordinator."""
    state: str
    """State of the transaction, such as `Ongoing` or `CompleteCommit`."""
    producer_id: int
    """ID of the producer."""
    producer_epoch: int
    """Epoch of the producer."""
    timeout_ms: int
    """Time after which the coordinator aborts the transaction, in milliseconds."""
    start_time_ms: int | None
    """Start of the transaction in milliseconds since the epoch, or None."""
    partitions: tuple[TopicPartition, ...]
    """Partitions of the transaction."""


@dataclass(frozen=True)
class AbortTransaction:
    """Open transaction of one producer in one partition, as `describe_producers` reports it."""

    partition: TopicPartition
    """The partition."""
    producer_id: int
    """ID of the producer."""
    producer_epoch: int
    """Epoch of the producer."""
    coordinator_epoch: int = 0
    """Epoch of the coordinator."""


async def list_transactions(
    cluster: Cluster,
    brokers: Iterable[int],
    *,
    states: Iterable[str],
    producer_ids: Iterable[int],
    longer_than_ms: int | None,
    pattern: str | None,
) -> dict[str, TransactionListing]:
    request = rpc.list_transactions(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=-1 if longer_than_ms is None else longer_than_ms,
        transactional_id_pattern=pattern,
    )
    min_version = 2 if pattern else 0 if longer_than_ms is None else 1

    async def ask(node: int, keys: list[int]) -> dict[int, list[TransactionListing] | ClientError]:
        response = await cluster.call(request, node=node, min_version=min_version)
        raise_for(response.error_code)
        if response.unknown_state_filters:
            unknown = ", ".join(response.unknown_state_filters)
            raise InvalidConfig(f"Transaction states {unknown} do not exist.")
        return {
            node: [
                TransactionListing(
                    entry.transactional_id, entry.producer_id, entry.transaction_state, node
                )
                for entry in response.transaction_states
            ]
        }

    lookup: AtBrokers[int] = AtBrokers(cluster, lambda broker: broker)
    listed = (await dispatch(lookup, brokers, ask, what="listing transactions")).checked(False)
    found = {each.transactional_id: each for listings in listed.values() for each in listings}
    return dict(sorted(found.items()))


async def describe_transactions(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> Results[str, TransactionDescription]:
    async def ask(node: int, ids: list[str]) -> dict[str, TransactionDescription | ClientError]:
        request = rpc.describe_transactions(transactional_ids=ids)
        response = await cluster.call(request, node=node)
        found: dict[str, TransactionDescription | ClientError] = {}
        for entry in response.transaction_states:
            if entry.error_code:
                found[entry.transactional_id] = error_for(entry.error_code)
                continue
            start = entry.transaction_start_time_ms
            found[entry.transactional_id] = TransactionDescription(
                entry.transactional_id,
                node,
                entry.transaction_state,
                entry.producer_id,
                entry.producer_epoch,
                entry.transaction_timeout_ms,
                None if start < 0 else start,
                tuple(
                    TopicPartition(topic.topic, partition)
                    for topic in entry.topics
                    for partition in topic.partitions
                ),
            )
        return found

    lookup = AtCoordinators(cluster, CoordinatorType.TRANSACTION)
    return await dispatch(lookup, transactional_ids, ask, what="describing transactions")


async def abort_transaction(cluster: Cluster, spec: AbortTransaction) -> None:
    """Write the abort marker to the partition, in place of the coordinator."""

    async def ask(
        node: int, keys: list[TopicPartition]
    ) -> dict[TopicPartition, ClientError | None]:
        marker: WritableTxnMarkerDict = {
            "producer_id": spec.producer_id,
            "producer_epoch": spec.producer_epoch,
            "coordinator_epoch": max(spec.coordinator_epoch, 0),
            "transaction_result": False,
            "topics": [{"name": key.topic, "partition_indexes": [key.partition]} for key in keys],
        }
        response = await cluster.call(rpc.write_txn_markers(markers=[marker]), node=node)
        return {
            TopicPartition(topic.name, entry.partition_index): error_for(
                entry.error_code, topic=topic.name, partition=entry.partition_index
            )
            if entry.error_code
            else None
            for marked in response.markers
            for topic in marked.topics
            for entry in topic.partitions
        }

    results: Results[TopicPartition, None] = await dispatch(
        AtLeaders(cluster), [spec.partition], ask, what="aborting the transaction"
    )
    results.checked(False)


async def fence_producers(
    cluster: Cluster, transactional_ids: Iterable[str]
) -> Results[str, tuple[int, int]]:
    """Fence the producers of transactional IDs and abort their open transactions.

    This obtains a new producer epoch for each ID.

    Returns:
        The new producer ID and epoch of each transactional ID.
    """

    async def ask(node: int, ids: list[str]) -> dict[str, tuple[int, int] | ClientError]:
        found: dict[str, tuple[int, int] | ClientError] = {}
        for each in ids:
            request = rpc.init_producer_id(
                transactional_id=each,
                transaction_timeout_ms=FENCING_TIMEOUT_MS,
                producer_id=NO_PRODUCER_ID,
                producer_epoch=NO_PRODUCER_EPOCH,
            )
            response = await cluster.call(request, node=node)
            if response.error_code:
                found[each] = error_for(response.error_code)
            else:
                found[each] = (response.producer_id, response.producer_epoch)
        return found

    lookup = AtCoordinators(cluster, CoordinatorType.TRANSACTION)
    return await dispatch(lookup, transactional_ids, ask, what="fencing producers")
