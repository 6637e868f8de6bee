"""Parts of a producer, connected: what `AsyncProducer`, `Producer` and Spark's sink share.

The event loop runs the sender and the transactions. Records are appended wherever `send` is called:
in a task, or in a thread of the user."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, UserError
from ottla.client.cluster import Cluster
from ottla.client.errors import (
    ClientClosed,
    ClientError,
    KafkaTimeout,
    UnknownTopic,
    timed_out,
)
from ottla.client.metadata import PartitionMetadata
from ottla.client.producer.accumulator import Accumulator, PartitionQueue, Reservation
from ottla.client.producer.completion import wait_until_complete
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.identity import Identity
from ottla.client.producer.partitioners import Partitioner
from ottla.client.producer.record_appender import NeedTopic, RecordAppender
from ottla.client.producer.sender import Sender
from ottla.client.producer.transaction import Phase, TransactionalIdentity
from ottla.client.producer.transaction_coordinator import ProducerIdentity
from ottla.client.serializers import Serializer

if TYPE_CHECKING:
    from ottla.client.producer.table import TableEncoder


class ProducerEngine:
    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        self.config = config
        self._cluster = cluster
        self.accumulator = Accumulator(
            batch_size=config.batch_size,
            linger_s=config.linger_ms / 1000,
            buffer_memory=config.buffer_memory,
        )
        self.accumulator.is_transactional = bool(config.transactional_id)
        self._transaction: TransactionalIdentity | None = None
        self._identity: Identity | None = None
        if config.transactional_id:
            self._transaction = TransactionalIdentity(config, self._cluster)
            self._identity = self._transaction
        elif config.is_idempotent:
            self._identity = Identity(config, self._cluster)
        self._sender = Sender(config, self._cluster, self.accumulator, self._identity)
        self.appender = RecordAppender(
            config,
            self._cluster,
            self.accumulator,
            self._sender.wake,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
        )
        if self._identity is not None:
            self._identity.on_fatal = self._end
        if self._transaction is not None:
            self._transaction.fail_unsent = self._sender.fail_unsent
            self._transaction.on_phase = self._phase_changed
        self._is_started = False
        self._is_closed = False

    async def start(self) -> None:
        if self._is_started:
            raise UserError("The producer is already started.")
        await self._cluster.start(timeout_ms=self.config.max_block_ms)
        if self._transaction is not None:
            try:
                await self._transaction.init()
            except BaseException:
                await self._cluster.release()
                raise
        self._accept()

    def start_sending(self, transaction: ProducerIdentity | None = None) -> None:
        """Start on a cluster that others have started and will close.

        Args:
            transaction: Identity under which to write in a transaction that another process may
                have begun, and that another process ends.
        """
        if transaction is not None:
            assert self._transaction is not None
            self._transaction.adopt(transaction)
        self._accept()

    def _accept(self) -> None:
        self._is_started = True
        self.appender.reject_with(
            None if self._transaction is None else self._transaction.send_error()
        )
        self._sender.start()

    async def stop_sending(self) -> None:
        """Fail all pending records; leave the cluster and the transaction as they are."""
        self._is_closed = True
        self.appender.close()
        await self._sender.close()
        if self._identity is not None:
            await self._identity.close()

    @property
    def transaction_failure(self) -> ClientError | None:
        """Why the transaction failed, if it did."""
        return None if self._transaction is None else self._transaction.failure

    async def close(self, timeout_s: float | None = None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.appender.close()
        if self._is_started:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._finish()
            except (TimeoutError, ClientError):
                pass
            finally:
                await self._sender.close()
                if self._identity is not None:
                    await self._identity.close()
        await self._cluster.close()

    async def _finish(self) -> None:
        transaction = self._transaction
        if transaction is not None and transaction.phase in (Phase.OPEN, Phase.FAILED):
            await transaction.abort(self.flush)
        else:
            await self.flush()

    def _phase_changed(self) -> None:
        assert self._transaction is not None
        if not self._is_closed:
            self.appender.reject_with(self._transaction.send_error())

    def _end(self, error: ClientError) -> None:
        """Handle a fatal error: reject new records and fail all pending ones."""
        if self.appender.rejection is None:
            self.appender.reject_with(error)
        self._sender.fail_all(error)

    def reserve(
        self, size_bytes: int, queue: PartitionQueue, timeout_s: float | None
    ) -> Reservation:
        """Wait for memory in the caller's thread, which must not be the event loop's."""
        granted = threading.Event()
        reservation = self.appender.reserve(size_bytes, granted.set)
        if reservation.granted:
            return reservation
        try:
            is_granted = granted.wait(timeout_s)
        except BaseException:
            self.accumulator.cancel(reservation)
            raise
        if not is_granted and not reservation.granted:
            raise self.appender.cancel_reservation(queue, reservation)
        return reservation

    async def find_topic(self, need: NeedTopic) -> None:
        """Wait for the metadata of a topic, or refresh it once to find a partition."""
        if need.partition is None:
            try:
                await self._cluster.topic(need.topic, timeout_ms=self.config.max_block_ms)
            except KafkaTimeout as error:
                error.topic = need.topic
                raise
            return
        known = self._cluster.metadata.topics.get(need.topic)
        await self._cluster.refresh([need.topic], timeout_ms=self.config.max_block_ms)
        known = self._cluster.metadata.topics.get(need.topic)
        count = 0 if known is None else known.partition_count
        if not 0 <= need.partition < count:
            raise UnknownTopic(
                f"topic {need.topic!r} has no partition {need.partition}; "
                f"it has {count} partitions",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                topic=need.topic,
                partition=need.partition,
            )

    def table_encoder(
        self, topic: str, table: Any, *, partition: str | int | None, **columns: Any
    ) -> TableEncoder:
        """Return an iterator over the encoded batches of a table."""
        from ottla.client.producer.table import TableEncoder

        if partition is None and self.appender.has_partitioner:
            raise UserError(
                "send_table needs the argument `partition` if the producer has a partitioner."
            )
        return TableEncoder(
            self.config,
            self._cluster.metadata.topics[topic],
            table,
            partition=partition,
            first_round_robin_index=random.randrange(1 << 30),
            **columns,
        )

    @property
    def transactions(self) -> TransactionalIdentity:
        """The state of the transactions; raises if the producer has no transactional ID."""
        if self._transaction is None:
            raise UserError("Transactions need a producer with a transactional_id.")
        if self._is_closed and self._transaction.phase is Phase.READY:
            raise ClientClosed("the producer is closed")
        return self._transaction

    async def abort_if_possible(self) -> None:
        """Abort the transaction if one is open or has failed."""
        transaction = self.transactions
        if transaction.phase in (Phase.OPEN, Phase.FAILED):
            await transaction.abort(self.flush)

    async def flush(self, timeout_s: float | None = None) -> None:
        with self.accumulator.lock:
            batches = list(self.accumulator.incomplete)
            self.accumulator.flushing += 1
        try:
            self._sender.wake()
            async with asyncio.timeout(timeout_s):
                await wait_until_complete(batches)
        except TimeoutError:
            assert timeout_s is not None
            timeout_ms = int(timeout_s * 1000)
            raise timed_out("flushing", timeout_ms, self._cluster.unreachable_reason) from None
        finally:
            with self.accumulator.lock:
                self.accumulator.flushing -= 1

    async def partition_metadata(self, topic: str) -> list[PartitionMetadata]:
        await self.find_topic(NeedTopic(topic, None))
        return list(self._cluster.metadata.topics[topic].partitions)
