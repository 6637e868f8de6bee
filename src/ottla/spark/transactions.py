"""Low-level transactions, which begin on an executor and end on the driver.

A normal producer hides its producer ID and epoch; here they are passed between processes. Requests
use versions that predate KIP-890, because with later ones brokers begin transactions implicitly and
bump the epoch with each end. So the same ID and epoch remain valid for the whole transaction, on
every broker since Kafka 2.5, and ending it can be retried."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.cluster import LOST_COORDINATOR, Cluster, CoordinatorType
from ottla.client.consumer.offsets import by_topic
from ottla.client.errors import error_for
from ottla.wire.api import Api

MAX_INIT_VERSION = 5
MAX_ADD_VERSION = 3
MAX_END_VERSION = 4
MAX_PRODUCE_VERSION = 11
"""Last versions in which only AddPartitionsToTxn begins a transaction."""

_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    }
)


class ProducerIdentity(NamedTuple):
    """Identity under which records are written."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class EndResult(Enum):
    COMPLETED = "has ended as requested"
    """It ended as requested, now or earlier."""
    LOST = "was aborted"
    """It timed out, or a newer producer with its ID aborted it: its records are discarded."""
    FORGOTTEN = "is no longer known to the broker"
    """The broker no longer knows it: it may have been committed or aborted."""


async def init_producer(
    cluster: Cluster, transactional_id: str | None, timeout_ms: int
) -> ProducerIdentity:
    """Obtain a producer ID and epoch.

    With a transactional ID, this fences the previous producer and aborts its open transaction;
    if a commit is in progress, it waits for it."""
    body = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": timeout_ms,
        "producer_id": -1,
        "producer_epoch": -1,
    }

    async def attempt() -> ProducerIdentity:
        if transactional_id is None:
            response = await cluster.call(Api.INIT_PRODUCER_ID, body, max_version=MAX_INIT_VERSION)
        else:
            response = await _call(
                cluster, transactional_id, Api.INIT_PRODUCER_ID, body, MAX_INIT_VERSION
            )
        _raise_for_code(cluster, transactional_id, response.error_code)
        return ProducerIdentity(transactional_id, response.producer_id, response.producer_epoch)

    return await cluster.retrying(attempt, what=f"initializing producer {transactional_id or ''}")


async def add_partitions(
    cluster: Cluster, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> None:
    """Add partitions to the transaction, before their first record is sent."""
    topics = [{"name": topic, "partitions": numbers} for topic, numbers in by_topic(partitions)]
    body = {
        "v3_and_below_transactional_id": producer.transactional_id,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": topics,
    }

    async def attempt() -> None:
        assert producer.transactional_id is not None
        response = await _call(
            cluster, producer.transactional_id, Api.ADD_PARTITIONS_TO_TXN, body, MAX_ADD_VERSION
        )
        for topic in response.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                code = result.partition_error_code
                if code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                    _raise_for_code(cluster, producer.transactional_id, code, topic.name)

    await cluster.retrying(attempt, what="adding partitions to a transaction")


async def end_transaction(
    cluster: Cluster, producer: ProducerIdentity, *, commit: bool
) -> EndResult:
    body = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "committed": commit,
    }

    async def attempt() -> EndResult:
        assert producer.transactional_id is not None
        response = await _call(
            cluster, producer.transactional_id, Api.END_TXN, body, MAX_END_VERSION
        )
        if response.error_code in _FENCED:
            return EndResult.LOST
        if response.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return EndResult.FORGOTTEN
        _raise_for_code(cluster, producer.transactional_id, response.error_code)
        return EndResult.COMPLETED

    return await cluster.retrying(attempt, what=f"ending transaction {producer.transactional_id}")


async def _call(
    cluster: Cluster, transactional_id: str, api: Api, body: dict[str, Any], max_version: int
) -> Any:
    return await cluster.call_coordinator(
        CoordinatorType.TRANSACTION, transactional_id, api, body, max_version=max_version
    )


def _raise_for_code(
    cluster: Cluster, transactional_id: str | None, code: int, topic: str | None = None
) -> None:
    if not code:
        return
    if code in LOST_COORDINATOR and transactional_id is not None:
        cluster.forget_coordinator(CoordinatorType.TRANSACTION, transactional_id)
    raise error_for(code, topic=topic)
