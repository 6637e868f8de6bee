"""Asyncio producer.

    async with AsyncProducer("localhost:9092") as producer:
        future = await producer.send("topic", b"value", key=b"key")
        print(await future)          # RecordMetadata(topic, partition, offset, timestamp)

`send` waits only while the topic is unknown or `buffer.memory` is full, for at most `max.block.ms`.
The future that it returns yields the record's outcome and may be ignored. Errors of the record
itself (too large, a serializer that raises) are raised by `send` and affect no other record."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ottla.base.errors import ErrorCode, UserError
from ottla.client.cluster import Cluster
from ottla.client.config import Bootstrap, Profile
from ottla.client.errors import (
    ClientClosed,
    ClientError,
    KafkaTimeout,
    TransactionAborted,
    UnknownTopic,
    timed_out,
)
from ottla.client.metadata import PartitionMetadata
from ottla.client.producer.accumulator import Accumulator, PartitionQueue, Reservation
from ottla.client.producer.batch import EncodedBatch, ProducerBatch
from ottla.client.producer.completion import call_soon, wait_until_complete
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.identity import Identity
from ottla.client.producer.partitioners import Partitioner, PartitionFunction, partitioner
from ottla.client.producer.record_appender import NeedMemory, NeedTopic, RecordAppender
from ottla.client.producer.record_fields import HeadersInput
from ottla.client.producer.sender import Sender
from ottla.client.producer.table_future import TableFuture
from ottla.client.producer.transaction import (
    GroupMember,
    Offsets,
    Phase,
    TransactionalIdentity,
)
from ottla.client.serializers import Serializer, serializer

if TYPE_CHECKING:
    from ottla.client.producer.table import TableEncoder

ENCODED_AT_A_TIME = 16
"""Number of a table's batches to encode in one go before the event loop continues."""


class AsyncProducer:
    """Client that writes records to topics.

        async with AsyncProducer("localhost:9092") as producer:
            future = await producer.send("orders", b"value", key=b"key")
            print(await future)  # RecordMetadata(topic, partition, offset, timestamp)

    `send` adds a record to a batch and returns a future; the producer sends the batches in the
    background. With a `transactional.id`, the producer fences the previous one that used it.
    Use a producer in the event loop that started it.

    Args:
        bootstrap: Broker addresses, such as `"host1:9092,host2:9092"`, a list of them, or a
            mapping of properties.
        profile: Properties to use unless they are given here: the path of a properties file, or
            a mapping.
        key_serializer: Function from a key to bytes, or `"json"`, `"string"` or `"bytes"`.
            None, the default, takes bytes and text.
        value_serializer: The same for values.
        partitioner: A partitioner, the name of one, or a function of topic, key, value and
            number of partitions that returns a partition.
        properties: Kafka's producer properties, with underscores for dots: `linger_ms=5`.

    Raises:
        InvalidConfig: A property does not exist or has an invalid value.

    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        profile: Profile | None = None,
        key_serializer: Serializer | str | None = None,
        value_serializer: Serializer | str | None = None,
        partitioner: Partitioner | PartitionFunction | str | None = None,
        **properties: Any,
    ) -> None:
        self.config = ProducerConfig.of(bootstrap, profile, properties)
        self._cluster = Cluster(self.config)
        self._cluster.allow_auto_create()
        self.accumulator = Accumulator(
            batch_size=self.config.batch_size,
            linger_s=self.config.linger_ms / 1000,
            buffer_memory=self.config.buffer_memory,
        )
        self.accumulator.is_transactional = bool(self.config.transactional_id)
        self._transaction: TransactionalIdentity | None = None
        self._identity: Identity | None = None
        if self.config.transactional_id:
            self._transaction = TransactionalIdentity(self.config, self._cluster)
            self._identity = self._transaction
        elif self.config.is_idempotent:
            self._identity = Identity(self.config, self._cluster)
        self._sender = Sender(self.config, self._cluster, self.accumulator, self._identity)
        self.appender = RecordAppender(
            self.config,
            self._cluster,
            self.accumulator,
            self._sender.wake,
            key_serializer=serializer(key_serializer),
            value_serializer=serializer(value_serializer),
            partitioner=_partitioner(partitioner),
        )
        if self._identity is not None:
            self._identity.on_fatal = self._end
        if self._transaction is not None:
            self._transaction.fail_unsent = self._sender.fail_unsent
            self._transaction.on_phase = self._phase_changed
        self._is_started = False
        self._is_closed = False

    # -------------------------------------------------------------------------- start and close

    async def start(self) -> Self:
        """Reach the cluster; with a `transactional.id`, fence its previous producer.

        Raises:
            BrokersUnreachable: No broker answered within `max.block.ms`.
        """
        assert not self._is_started, "the producer is already started"
        await self._cluster.start(timeout_ms=self.config.max_block_ms)
        if self._transaction is not None:
            try:
                await self._transaction.init()
            except BaseException:
                await self._cluster.release()
                raise
        self._is_started = True
        self.appender.reject_with(
            None if self._transaction is None else self._transaction.send_error()
        )
        self._sender.start()
        return self

    async def close(self, timeout_s: float | None = None) -> None:
        """Send all batches and close the connections; abort an open transaction.

        Records that could not be sent in time fail with ClientClosed.

        Args:
            timeout_s: Seconds to wait for acknowledgements. None waits until every record is
                acknowledged or has failed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self.appender.reject_with(ClientClosed("the producer is closed"))
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

    async def __aenter__(self) -> Self:
        try:
            return await self.start()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _finish(self) -> None:
        transaction = self._transaction
        if transaction is not None and transaction.phase in (Phase.OPEN, Phase.FAILED):
            await self.abort_transaction()
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

    # --------------------------------------------------------------------------------- records

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: HeadersInput | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        priority: int | None = None,
    ) -> RecordFuture:
        """Add a record to a batch and return a future for its acknowledgement.

        The call waits only while the topic is unknown or `buffer.memory` is full, each for at most
        `max.block.ms`. If it raises, the record was not added.

        Args:
            topic: Topic to write to.
            value: Value for the serializer, or None for a tombstone.
            key: Key for the serializer, or None. Equal keys go to the same partition.
            headers: Pairs of a name and bytes, or a mapping.
            partition: Partition to write to, instead of the one that the partitioner chooses.
            timestamp: Milliseconds since the epoch; the current time by default.
            priority: Priority for a `PriorityPartitioner`; 0 is the highest.

        Returns:
            A future that can be awaited. It may be ignored.

        Raises:
            UnknownTopic: The topic or the partition does not exist.
            SerializationFailed: A serializer raised.
            RecordTooLarge: The record exceeds `max.request.size`.
            BufferFull: `buffer.memory` stayed full for `max.block.ms`.
            ClientClosed: The producer is closed.

        Example:
            future = await producer.send("orders", b"3 apples", key=b"alice", headers={"v": b"1"})
            metadata = await future
        """
        appender = self.appender
        while True:
            outcome = appender.try_append(
                topic, value, key, headers, partition, timestamp, priority
            )
            if type(outcome) is RecordFuture:
                if appender.should_yield:
                    # Yield to the sender, so that it sends the full batches before more are filled.
                    appender.should_yield = False
                    await asyncio.sleep(0)
                return outcome
            if isinstance(outcome, NeedTopic):
                await self.find_topic(outcome)
            elif isinstance(outcome, NeedMemory):
                return await self._wait_for_memory(outcome)

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

    async def _wait_for_memory(self, record: NeedMemory) -> RecordFuture:
        reservation = await self._reserve(record.needed_bytes, record.queue)
        return self.appender.append_reserved(record, reservation)

    async def _reserve(self, size_bytes: int, queue: PartitionQueue) -> Reservation:
        loop = asyncio.get_running_loop()
        granted = loop.create_future()

        def notify() -> None:
            if not granted.done():
                granted.set_result(None)

        reservation = self.appender.reserve(size_bytes, lambda: call_soon(loop, notify))
        if reservation.granted:
            return reservation
        try:
            async with asyncio.timeout(self.config.max_block_ms / 1000):
                await granted
        except TimeoutError:
            if not reservation.granted:
                raise self.appender.cancel_reservation(queue, reservation) from None
        except BaseException:
            self.accumulator.cancel(reservation)
            raise
        return reservation

    # ---------------------------------------------------------------------------------- tables

    async def send_table(
        self,
        topic: str,
        table: Any,
        *,
        key: str | Sequence[str] | None = None,
        value: str | Sequence[str] | None = None,
        headers: str | None = None,
        timestamp: str | int | None = None,
        partition: str | int | None = None,
    ) -> TableFuture:
        """Write the rows of an Arrow table as records.

        The call returns when every row is in a batch, which `buffer.memory` may delay. If a row
        cannot be encoded, the rows before it are sent nevertheless. Needs the `arrow` extra.

        A column that is named alone is used as it is if it holds bytes or text, and encoded as JSON
        otherwise. Several columns become a JSON object.

        Args:
            topic: Topic to write to.
            table: Arrow table, or an object with the Arrow PyCapsule interface.
            key: Column, or columns, of the key. None writes records without a key.
            value: Column, or columns, of the value. None takes all columns that are not used
                otherwise.
            headers: Column of headers, a `list<struct<key, value>>` or a map.
            timestamp: Column of timestamps, or one in milliseconds for all rows.
            partition: Column of partitions, or one partition for all rows.

        Returns:
            A future for the acknowledgement of all rows.

        Raises:
            UnknownTopic: The topic or a partition does not exist.
            SerializationFailed: A row cannot be encoded.
            RecordTooLarge: A row exceeds `max.request.size`.
            BufferFull: `buffer.memory` stayed full for `max.block.ms`.

        Example:
            table = pyarrow.table({"id": ["a", "b"], "amount": [1, 2]})
            await (await producer.send_table("orders", table, key="id"))
        """
        await self.find_topic(NeedTopic(topic, None))
        options = {"key": key, "value": value, "headers": headers, "timestamp": timestamp}
        # In a thread, because loading the kernels takes half a second, and compiling them longer.
        encoder = await asyncio.to_thread(
            self.table_encoder, topic, table, partition=partition, **options
        )
        batches: list[ProducerBatch] = []
        remaining = iter(encoder)
        while some := await asyncio.to_thread(_some, remaining):
            for batch in some:
                queue = self.appender.queue_of(topic, batch.partition)
                await self._reserve(batch.reserved_bytes, queue)
                self.appender.append_batch(queue, batch)
                batches.append(batch)
        return TableFuture(topic, batches)

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

    # ---------------------------------------------------------------------------- transactions

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begin a transaction for a block, and commit it at the end.

        If the block raises, the transaction is aborted and the exception propagates.

        Raises:
            TransactionAborted: The commit failed and the transaction was aborted. The block may be
                tried again.
            ProducerFenced: A newer producer uses the transactional ID. Close this one.
            UserError: The producer has no `transactional.id`.

        Example:
            async with producer.transaction():
                await producer.send("orders", b"3 apples")
                await producer.send_offsets(consumer)
        """
        await self.begin_transaction()
        try:
            yield self
        except BaseException:
            await self.abort_if_possible()
            raise
        try:
            await self.commit_transaction()
        except TransactionAborted:
            await self.abort_if_possible()
            raise

    async def begin_transaction(self) -> None:
        """Begin a transaction; records that are sent from now on belong to it.

        Raises:
            UserError: The producer has no `transactional.id`, or a transaction is open already.
            TransactionAborted: The previous transaction must be aborted first.
            ProducerFenced: A newer producer uses the transactional ID. Close this one.
        """
        await self._transactions.begin()

    async def commit_transaction(self) -> None:
        """Wait until all records are acknowledged, and commit the transaction.

        Consumers with `isolation.level=read_committed` see the records from then on.

        Raises:
            TransactionAborted: The transaction must be aborted instead.
            KafkaTimeout: The outcome is unknown. Call the method again.
            ProducerFenced: A newer producer uses the transactional ID. Close this one.
        """
        await self._transactions.commit(self.flush)

    async def abort_transaction(self) -> None:
        """Abort the transaction and drop the records that were not sent.

        Consumers with `isolation.level=read_committed` skip the records that were sent.

        Raises:
            KafkaTimeout: The outcome is unknown. Call the method again.
            ProducerFenced: A newer producer uses the transactional ID. Close this one.
        """
        await self._transactions.abort(self.flush)

    async def send_offsets(
        self, offsets: Offsets | Any, group_metadata: GroupMember | str | Any = None
    ) -> None:
        """Commit a consumer group's offsets as part of the transaction.

        Args:
            offsets: The consumer, for its current positions, or a mapping of partitions to offsets.
            group_metadata: Group ID, or the consumer's `group_metadata()`, which fences members
                that have left the group. Not needed when `offsets` is a consumer.

        Raises:
            UserError: No transaction is open, or the group is missing.
            TransactionAborted: The transaction must be aborted, for example because the consumer
                has lost its partitions.
        """
        consumer: Any = offsets
        if hasattr(consumer, "assignment"):
            group_metadata = group_metadata or consumer.group_metadata()
            offsets = {tp: await consumer.position(tp) for tp in consumer.assignment()}
        await self._transactions.send_offsets(offsets, _group(group_metadata))

    @property
    def _transactions(self) -> TransactionalIdentity:
        if self._transaction is None:
            raise UserError("Transactions need a producer with a transactional_id.")
        if self._is_closed and self._transaction.phase is Phase.READY:
            raise ClientClosed("the producer is closed")
        return self._transaction

    async def abort_if_possible(self) -> None:
        """Abort the transaction if one is open or has failed."""
        if self._transactions.phase in (Phase.OPEN, Phase.FAILED):
            await self.abort_transaction()

    # ----------------------------------------------------------------------- flush, metadata

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all batches now, and wait until each record is acknowledged or has failed.

        Args:
            timeout_s: Seconds to wait. None waits without limit.

        Raises:
            KafkaTimeout: Records were still pending after `timeout_s`. Failures of records are
                reported by their futures only.
        """
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

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """Return the partitions of a topic, ordered by number.

        Args:
            topic: Name of the topic.

        Raises:
            UnknownTopic: The topic does not exist.
            KafkaTimeout: The brokers did not answer within `max.block.ms`.
        """
        await self.find_topic(NeedTopic(topic, None))
        return list(self._cluster.metadata.topics[topic].partitions)


def _group(group: Any) -> GroupMember:
    if isinstance(group, str):
        return GroupMember(group)
    if group is None:
        raise UserError(
            "send_offsets needs the consumer group: its ID, or the consumer's group_metadata()."
        )
    return GroupMember(
        group.group_id, group.generation_id, group.member_id, group.group_instance_id
    )


def _some(batches: Iterator[EncodedBatch]) -> list[EncodedBatch]:
    return list(islice(batches, ENCODED_AT_A_TIME))


_partitioner = partitioner
