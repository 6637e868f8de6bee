"""Transactions that begin on an executor and end on the driver.

A normal producer hides its producer ID and epoch; here they are passed between processes. Requests
use versions that predate KIP-890, because with later ones brokers begin transactions implicitly and
bump the epoch with each end. So the same ID and epoch remain valid for the whole transaction, on
every broker since Kafka 2.5, and ending it can be retried."""

from __future__ import annotations

from enum import Enum

from ottla.base.errors import ErrorCode
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.producer.transaction_coordinator import (
    LAST_EXPLICIT_INIT,
    ProducerIdentity,
    TransactionCoordinator,
)

_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class EndResult(Enum):
    COMPLETED = "has ended as requested"
    """It ended as requested, now or earlier."""
    LOST = "was aborted"
    """It timed out, or a newer producer with its ID aborted it: its records are discarded."""
    FORGOTTEN = "is no longer known to the broker"
    """The broker no longer knows it: it may have been committed or aborted."""


async def init_producer(
    cluster: Cluster, transactional_id: str, timeout_ms: int
) -> ProducerIdentity:
    """Obtain a producer ID and epoch for a transactional ID.

    This fences the previous producer and aborts its open transaction; if a commit is in progress,
    it waits for it."""
    coordinator = _coordinator(cluster, transactional_id)
    return await coordinator.init_producer(timeout_ms, max_version=LAST_EXPLICIT_INIT)


async def end_transaction(
    cluster: Cluster, producer: ProducerIdentity, *, commit: bool
) -> EndResult:
    assert producer.transactional_id is not None
    try:
        await _coordinator(cluster, producer.transactional_id).end(producer, committed=commit)
    except ClientError as error:
        if error.code in _FENCED:
            return EndResult.LOST
        if error.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return EndResult.FORGOTTEN
        raise
    return EndResult.COMPLETED


def _coordinator(cluster: Cluster, transactional_id: str) -> TransactionCoordinator:
    return TransactionCoordinator(cluster, transactional_id, cluster.config.default_api_timeout_ms)
