"""Blocking producer.

    with Producer("localhost:9092") as producer:
        future = producer.send("topic", b"value", key=b"key")
        print(future.result())

`send` appends the record to a batch in the caller's thread; an event loop in the producer's own
thread does the rest. Any number of threads may share a producer. Callbacks of futures run in the
producer's thread and must not wait for the producer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, Unpack

from ottla.base.deprecation import warn_deprecated
from ottla.client.blocking import BlockingClient, LoopThread, blocking, documented_by
from ottla.client.config import Bootstrap, Profile
from ottla.client.errors import TransactionAborted
from ottla.client.metadata import PartitionMetadata
from ottla.client.producer.accumulator import PartitionQueue, Reservation
from ottla.client.producer.async_producer import PARTITIONS_INSTEAD, AsyncProducer
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.partitioners import Partitioner, PartitionFunction
from ottla.client.producer.record_appender import NeedMemory, NeedTopic
from ottla.client.producer.record_fields import HeadersInput
from ottla.client.producer.table_future import TableFuture
from ottla.client.producer.transaction import ConsumerIdentity, ConsumerPositions, Offsets
from ottla.client.properties import ProducerProperties
from ottla.client.serializers import Serializer


class Producer(BlockingClient[AsyncProducer]):
    """Client that writes records to topics.

        with Producer("localhost:9092") as producer:
            future = producer.send("orders", b"value", key=b"key")
            print(future.result())  # RecordMetadata(topic, partition, offset, timestamp)

    `send` adds a record to a batch and returns a future; the producer sends the batches in the
    background. With a `transactional.id`, the producer fences the previous one that used it.
    Any number of threads may share a producer. Callbacks of futures run in the producer's
    own thread and must not block.

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
        BrokersUnreachable: No broker answered within `max.block.ms`.
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
        client = AsyncProducer(
            bootstrap,
            profile=profile,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            **properties,
        )
        self._engine = client.engine
        self._appender = client.engine.appender
        super().__init__(client, LoopThread("ottla-producer"))

    @property
    def config(self) -> ProducerConfig:
        """Configuration of the producer, with all defaults."""
        return self._async.config

    def send(
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
            A future that `result()` waits for. It may be ignored.

        Raises:
            UnknownTopic: The topic or the partition does not exist.
            SerializationFailed: A serializer raised.
            RecordTooLarge: The record exceeds `max.request.size`.
            BufferFull: `buffer.memory` stayed full for `max.block.ms`.
            ClientClosed: The producer is closed.

        Example:
            future = producer.send("orders", b"3 apples", key=b"alice", headers={"v": b"1"})
            metadata = future.result(timeout_s=10)
        """
        appender = self._appender
        while True:
            outcome = appender.try_append(
                topic, value, key, headers, partition, timestamp, priority
            )
            if type(outcome) is RecordFuture:
                if appender.should_yield:
                    # Release the GIL, so that the sender's thread can send the full batches
                    # before this thread fills more.
                    appender.should_yield = False
                    time.sleep(0)
                return outcome
            if isinstance(outcome, NeedTopic):
                self._thread.run(self._engine.find_topic, outcome)
            elif isinstance(outcome, NeedMemory):
                return self._wait_for_memory(outcome)

    def _wait_for_memory(self, record: NeedMemory) -> RecordFuture:
        reservation = self._reserve(record.needed_bytes, record.queue)
        return self._appender.append_reserved(record, reservation)

    def _reserve(self, size_bytes: int, queue: PartitionQueue) -> Reservation:
        # In a callback, waiting would block the loop that frees memory.
        max_block_s = 0.0 if self._thread.is_current else self.config.max_block_ms / 1000
        return self._engine.reserve(size_bytes, queue, max_block_s)

    def send_table(
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
            producer.send_table("orders", table, key="id").result()
        """
        self._thread.run(self._engine.find_topic, NeedTopic(topic, None))
        options = {"key": key, "value": value, "headers": headers, "timestamp": timestamp}
        encoder = self._engine.table_encoder(topic, table, partition=partition, **options)
        batches: list[ProducerBatch] = []
        for batch in encoder:
            queue = self._appender.queue_of(topic, batch.partition)
            self._reserve(batch.reserved_bytes, queue)
            self._appender.append_batch(queue, batch)
            batches.append(batch)
        return TableFuture(topic, batches)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Begin a transaction for a block, and commit it at the end.

        If the block raises, the transaction is aborted and the exception propagates.

        Raises:
            TransactionAborted: The commit failed and the transaction was aborted. The block may be
                tried again.
            ProducerFenced: A newer producer uses the transactional ID. Close this one.
            UserError: The producer has no `transactional.id`.

        Example:
            with producer.transaction():
                producer.send("orders", b"3 apples")
                producer.send_offsets(consumer)
        """
        self.begin_transaction()
        try:
            yield self
        except BaseException:
            self._thread.run(self._engine.abort_if_possible)
            raise
        try:
            self.commit_transaction()
        except TransactionAborted:
            self._thread.run(self._engine.abort_if_possible)
            raise

    begin_transaction = blocking(AsyncProducer.begin_transaction)
    commit_transaction = blocking(AsyncProducer.commit_transaction)
    abort_transaction = blocking(AsyncProducer.abort_transaction)

    @documented_by(AsyncProducer.send_offsets)
    def send_offsets(
        self,
        offsets: Offsets | ConsumerPositions[int],
        group_metadata: ConsumerIdentity | str | None = None,
    ) -> None:
        if not isinstance(offsets, Mapping):
            consumer = offsets
            group_metadata = group_metadata or consumer.group_metadata()
            offsets = {tp: consumer.position(tp) for tp in consumer.assignment()}
        self._thread.run(self._async.send_offsets, offsets, group_metadata)

    flush = blocking(AsyncProducer.flush)
    partition_metadata = blocking(AsyncProducer.partition_metadata)

    @documented_by(AsyncProducer.partitions_for)
    def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        warn_deprecated("partitions_for() of a producer", PARTITIONS_INSTEAD)
        return self.partition_metadata(topic)

    @documented_by(AsyncProducer.close)
    def close(self, timeout_s: float | None = None) -> None:
        if self._thread.is_alive:
            try:
                self._thread.run(self._async.close, timeout_s)
            finally:
                self._thread.close()
