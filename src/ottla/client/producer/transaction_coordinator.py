"""Requests of one transactional ID to its transaction coordinator, with retries.

`TransactionalIdentity` uses them for the transactions of a producer. Spark's sink uses them alone:
there, a transaction begins in one process and ends in another, and the producer ID and epoch travel
between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, partitions_by_topic
from ottla.client.cluster import LOST_COORDINATOR, Cluster, CoordinatorType
from ottla.client.errors import error_for
from ottla.wire import rpc
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
    from ottla.wire.messages.init_producer_id import InitProducerIdRequestDict

T = TypeVar("T")

FIRST_BUMPING_INIT = 3
LAST_EXPLICIT_INIT = 5
LAST_EXPLICIT_ADD_PARTITIONS = 3
"""Later versions of AddPartitionsToTxn are reserved for brokers."""
LAST_EXPLICIT_END_TXN = 4
"""Last versions before KIP-890: AddPartitionsToTxn begins transactions, no end bumps the epoch."""
CONCURRENT_PAUSE_S = 0.02
"""Pause while the markers of the previous transaction are written, which takes little time."""


class ProducerIdentity(NamedTuple):
    """Identity under which records are written."""

    transactional_id: str | None
    producer_id: int
    producer_epoch: int


class TransactionCoordinator:
    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms

    async def init_producer(
        self,
        transaction_timeout_ms: int,
        *,
        bumped: ProducerIdentity | None = None,
        max_version: int | None = None,
    ) -> ProducerIdentity:
        """Obtain a producer ID and epoch.

        This fences the previous producer and aborts its open transaction; if a commit is in
        progress, it waits for it.

        Args:
            transaction_timeout_ms: Time after which the coordinator aborts a transaction.
            bumped: Identity of this producer, to obtain its next epoch (KIP-360).
            max_version: Last version of the request to use.
        """
        body: InitProducerIdRequestDict = {
            "transactional_id": self._id,
            "transaction_timeout_ms": transaction_timeout_ms,
        }
        if bumped is not None:
            body["producer_id"] = bumped.producer_id
            body["producer_epoch"] = bumped.producer_epoch
        response = await self.call(
            rpc.init_producer_id(**body),
            error_code,
            min_version=0 if bumped is None else FIRST_BUMPING_INIT,
            max_version=max_version,
        )
        return ProducerIdentity(self._id, response.producer_id, response.producer_epoch)

    async def add_partitions(
        self, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> None:
        """Add partitions to the transaction, before their first record is sent."""
        request = rpc.add_partitions_to_txn(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[
                {"name": name, "partitions": numbers}
                for name, numbers in partitions_by_topic(partitions).items()
            ],
        )
        await self.call(request, _first_added_error, max_version=LAST_EXPLICIT_ADD_PARTITIONS)

    async def end(self, producer: ProducerIdentity, *, committed: bool) -> None:
        """Commit or abort a transaction whose partitions were added explicitly.

        The producer ID and epoch stay valid, so that the call can be repeated."""
        request = rpc.end_txn(
            transactional_id=self._id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
        await self.call(request, error_code, max_version=LAST_EXPLICIT_END_TXN)

    async def call(
        self,
        request: Request[T],
        code_of: Callable[[T], int],
        *,
        coordinator: tuple[CoordinatorType, str] | None = None,
        min_version: int = 0,
        max_version: int | None = None,
    ) -> T:
        """Send a request to a coordinator, with retries.

        Args:
            request: The request.
            code_of: Returns the error code of a response; `error_code` for most APIs.
            coordinator: The coordinator; that of the transactional ID by default.
            min_version: The oldest version that can express the request.
            max_version: The newest version to use, or None for any.

        Raises:
            ClientError: The coordinator answered with an error, or not in time.
        """
        kind, key = coordinator or (CoordinatorType.TRANSACTION, self._id)

        async def attempt() -> T:
            while True:
                response = await self._cluster.call_coordinator(
                    kind, key, request, min_version=min_version, max_version=max_version
                )
                code = code_of(response)
                if code == ErrorCode.CONCURRENT_TRANSACTIONS:
                    await asyncio.sleep(CONCURRENT_PAUSE_S)
                    continue
                if code in LOST_COORDINATOR:
                    self._cluster.forget_coordinator(kind, key)
                if code:
                    raise error_for(code)
                return response

        return await self._cluster.retrying(
            attempt, timeout_ms=self._timeout_ms, what=f"{request.api.name} for {self._id}"
        )


class _Response(Protocol):
    error_code: int


def error_code(response: _Response) -> int:
    """Return the error code of a response that has one for the whole request."""
    return response.error_code


def _first_added_error(response: AddPartitionsToTxnResponse) -> int:
    """Return the first meaningful code: the others only say that nothing was attempted."""
    codes = [
        partition.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    failures = [code for code in codes if code not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)]
    return failures[0] if failures else 0
