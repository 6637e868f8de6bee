"""Asyncio producer.

    async with AsyncProducer("localhost:9092") as producer:
        future = await producer.send("topic", b"value", key=b"key")
        print(await future)          # RecordMetadata(topic, partition, offset, timestamp)

`send` waits only while the topic is unknown or `buffer.memory` is full, for at most `max.block.ms`.
The future that it returns yields the record's outcome and may be ignored. Errors of the record
itself (too large, a serializer that raises) are raised by `send` and affect no other record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from ottla.base.deprecation import warn_deprecated
from ottla.base.errors import UserError
from ottla.client.cluster import Cluster
from ottla.client.config import Bootstrap, Profile
from ottla.client.errors import (
    TransactionAborted,
)
from ottla.client.metadata import PartitionMetadata
from ottla.client.producer.accumulator import PartitionQueue, Reservation
from ottla.client.producer.batch import EncodedBatch, ProducerBatch
from ottla.client.producer.completion import call_soon
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.engine import ProducerEngine
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.partitioners import Partitioner, PartitionFunction, partitioner
from ottla.client.producer.record_appender import NeedMemory, NeedTopic
from ottla.client.producer.record_fields import HeadersInput
from ottla.client.producer.table_future import TableFuture
from ottla.client.producer.transaction import (
    ConsumerIdentity,
    ConsumerPositions,
    GroupMember,
    Offsets,
)
from ottla.client.properties import ProducerProperties
from ottla.client.serializers import Serializer, serializer

if TYPE_CHECKING:
    pass

PARTITIONS_INSTEAD = "Call partition_metadata()."

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
        **properties: Unpack[ProducerProperties],
    ) -> None:
        config = ProducerConfig.of(bootstrap, profile, properties)
        cluster = Cluster(config)
        cluster.allow_auto_create()
        self.engine = ProducerEngine(
            config,
            cluster,
            key_serializer=serializer(key_serializer),
            value_serializer=serializer(value_serializer),
            partitioner=_partitioner(partitioner),
        )
        self._appender = self.engine.appender

    @property
    def config(self) -> ProducerConfig:
        """Configuration of the producer, with all defaults."""
        return self.engine.config

    # -------------------------------------------------------------------------- start and close

    async def start(self) -> Self:
        """Reach the cluster; with a `transactional.id`, fence its previous producer.

        Raises:
            BrokersUnreachable: No broker answered within `max.block.ms`.
        """
        await self.engine.start()
        return self

    async def close(self, timeout_s: float | None = None) -> None:
        """Send all batches and close the connections; abort an open transaction.

        Records that could not be sent in time fail with ClientClosed.

        Args:
            timeout_s: Seconds to wait for acknowledgements. None waits until every record is
                acknowledged or has failed.
        """
        await self.engine.close(timeout_s)

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
        appender = self._appender
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
                await self.engine.find_topic(outcome)
            elif isinstance(outcome, NeedMemory):
                return await self._wait_for_memory(outcome)

    async def _wait_for_memory(self, record: NeedMemory) -> RecordFuture:
        reservation = await self._reserve(record.needed_bytes, record.queue)
        return self._appender.append_reserved(record, reservation)

    async def _reserve(self, size_bytes: int, queue: PartitionQueue) -> Reservation:
        loop = asyncio.get_running_loop()
        granted = loop.create_future()

        def notify() -> None:
            if not granted.done():
                granted.set_result(None)

        reservation = self._appender.reserve(size_bytes, lambda: call_soon(loop, notify))
        if reservation.granted:
            return reservation
        try:
            async with asyncio.timeout(self.config.max_block_ms / 1000):
                await granted
        except TimeoutError:
            if not reservation.granted:
                raise self._appender.cancel_reservation(queue, reservation) from None
        except BaseException:
            self.engine.accumulator.cancel(reservation)
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
        await self.engine.find_topic(NeedTopic(topic, None))
        options = {"key": key, "value": value, "headers": headers, "timestamp": timestamp}
        # In a thread, because loading the kernels takes half a second, and compiling them longer.
        encoder = await asyncio.to_thread(
            self.engine.table_encoder, topic, table, partition=partition, **options
        )
        batches: list[ProducerBatch] = []
        remaining = iter(encoder)
        while some := await asyncio.to_thread(_some, remaining):
            for batch in some:
                queue = self._appender.queue_of(topic, batch.partition)
                await self._reserve(batch.reserved_bytes, queue)
                self._appender.append_batch(queue, batch)
                batches.append(batch)
        return TableFuture(topic, batches)

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
            await self.engine.abort_if_possible()
            raise
        try:
            await self.commit_transaction()
        except TransactionAborted:
            await self.engine.abort_if_possible()
            raise

    async def begin_transaction(self) -> None:
        """Begin a transaction; records that are sent from now on belong to it.

        Raises:
            UserError: The producer has no `transactional.id`, or a transaction is open already.
            TransactionAborted: The previous transaction must be aborted first.
            ProducerFenced: A newer producer uses the transactional ID. Close this one.
        """
        await self.engine.transactions.begin()

    async def commit_transaction(self) -> None:
        """Wait until all records are acknowledged, and commit the transaction.

        Consumers with `isolation.level=read_committed` see the records from then on.

        Raises:
            TransactionAborted: The transaction must be aborted instead.
            KafkaTimeout: The outcome is unknown. Call the method again.
            ProducerFenced: A newer producer uses the transactional ID. Close this one.
        """
        await self.engine.transactions.commit(self.engine.flush)

    async def abort_transaction(self) -> None:
        """Abort the transaction and drop the records that were not sent.

        Consumers with `isolation.level=read_committed` skip the records that were sent.

        Raises:
            KafkaTimeout: The outcome is unknown. Call the method again.
            ProducerFenced: A newer producer uses the transactional ID. Close this one.
        """
        await self.engine.transactions.abort(self.engine.flush)

    async def send_offsets(
        self,
        offsets: Offsets | ConsumerPositions[Awaitable[int]],
        group_metadata: ConsumerIdentity | str | None = None,
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
        if not isinstance(offsets, Mapping):
            consumer = offsets
            group_metadata = group_metadata or consumer.group_metadata()
            offsets = {tp: await consumer.position(tp) for tp in consumer.assignment()}
        await self.engine.transactions.send_offsets(offsets, _group(group_metadata))

    # ----------------------------------------------------------------------- flush, metadata

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all batches now, and wait until each record is acknowledged or has failed.

        Args:
            timeout_s: Seconds to wait. None waits without limit.

        Raises:
            KafkaTimeout: Records were still pending after `timeout_s`. Failures of records are
                reported by their futures only.
        """
        await self.engine.flush(timeout_s)

    async def partition_metadata(self, topic: str) -> list[PartitionMetadata]:
        """Return leader and replicas of a topic's partitions, ordered by number.

        Args:
            topic: Name of the topic.

        Raises:
            UnknownTopic: The topic does not exist.
            KafkaTimeout: The brokers did not answer within `max.block.ms`.
        """
        return await self.engine.partition_metadata(topic)

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """Return the same as `partition_metadata`. Deprecated.

        The consumer's method of this name returns `TopicPartition` values instead.

        Args:
            topic: Name of the topic.
        """
        warn_deprecated("partitions_for() of a producer", PARTITIONS_INSTEAD)
        return await self.engine.partition_metadata(topic)


def _group(group: ConsumerIdentity | str | None) -> GroupMember:
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
