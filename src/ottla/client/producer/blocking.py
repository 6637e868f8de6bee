"""Producer: AsyncProducer for threads.

    with Producer("localhost:9092") as producer:
        future = producer.send("topic", b"value", key=b"key")
        print(future.result())

`send` works in the caller's thread, up to the batch that the record joins; an event loop in a
thread of the producer's does the rest. Any number of threads may share a producer. Callbacks of
futures run in that thread: they must not wait for the producer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from ottla.client.blocking import LoopThread
from ottla.client.config import Bootstrap, Profile
from ottla.client.errors import TransactionAborted
from ottla.client.metadata import PartitionMetadata
from ottla.client.producer.accumulator import PartitionQueue, Reservation
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.intake import NeedMemory, NeedTopic
from ottla.client.producer.partitioners import Partitioner, PartitionFunction
from ottla.client.producer.producer import AsyncProducer
from ottla.client.producer.record_fields import HeadersGiven
from ottla.client.producer.table_future import TableFuture
from ottla.client.producer.transaction import GroupMember, Offsets
from ottla.client.serializers import Serializer


class Producer:
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
        """Reaches the cluster, or raises BrokersUnreachable after `max.block.ms`."""
        self._producer = AsyncProducer(
            bootstrap,
            profile=profile,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            **properties,
        )
        self._intake = self._producer.intake
        self._thread = LoopThread("ottla-producer")
        try:
            self._thread.run(self._producer.start())
        except BaseException:
            self.close()
            raise

    @property
    def config(self) -> ProducerConfig:
        return self._producer.config

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: HeadersGiven | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        priority: int | None = None,
    ) -> RecordFuture:
        """Hand over a record. `timestamp` is in milliseconds since 1970; now, unless given."""
        intake = self._intake
        while True:
            outcome = intake.offer(topic, value, key, headers, partition, timestamp, priority)
            if type(outcome) is RecordFuture:
                if intake.is_turn_due:
                    # Batches are full: give the sender's thread the interpreter, or it waits for
                    # its turn while we fill more.
                    intake.is_turn_due = False
                    time.sleep(0)
                return outcome
            if isinstance(outcome, NeedTopic):
                self._thread.run(self._producer.find_topic(outcome))
            elif isinstance(outcome, NeedMemory):
                return self._wait_for_memory(outcome)

    def _wait_for_memory(self, record: NeedMemory) -> RecordFuture:
        reservation = self._reserve(record.needed_bytes, record.queue)
        return self._intake.place(record, reservation)

    def _reserve(self, size_bytes: int, queue: PartitionQueue) -> Reservation:
        granted = threading.Event()
        reservation = self._intake.reserve(size_bytes, granted.set)
        if reservation.granted:
            return reservation
        if self._thread.is_current:  # in a callback: nobody would give memory back meanwhile
            raise self._intake.give_up(queue, reservation)
        try:
            is_granted = granted.wait(self.config.max_block_ms / 1000)
        except BaseException:
            self._producer.accumulator.cancel(reservation)
            raise
        if not is_granted and not reservation.granted:
            raise self._intake.give_up(queue, reservation)
        return reservation

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
        """Hand over the rows of an Arrow table as records; see `table` for what columns become.
        Returns when all of them are in batches, which `buffer.memory` may delay. If a row cannot
        be a record, what came before it is sent all the same. Needs the `arrow` extra."""
        self._thread.run(self._producer.find_topic(NeedTopic(topic, None)))
        options = {"key": key, "value": value, "headers": headers, "timestamp": timestamp}
        encoder = self._producer.table_encoder(topic, table, partition=partition, **options)
        batches: list[ProducerBatch] = []
        for batch in encoder:
            queue = self._intake.queue_of(topic, batch.partition)
            self._reserve(batch.reserved_bytes, queue)
            self._intake.add(queue, batch)
            batches.append(batch)
        return TableFuture(topic, batches)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """`with producer.transaction(): …` commits at the end, or aborts if something is raised.
        After TransactionAborted the block may be tried again; after an error that is `fatal` the
        producer must be closed."""
        self.begin_transaction()
        try:
            yield self
        except BaseException:
            self._thread.run(self._producer.abort_if_possible())
            raise
        try:
            self.commit_transaction()
        except TransactionAborted:
            self._thread.run(self._producer.abort_if_possible())
            raise

    def begin_transaction(self) -> None:
        self._thread.run(self._producer.begin_transaction())

    def commit_transaction(self) -> None:
        """Wait for all records to be acknowledged, and make them visible together. Raises
        TransactionAborted if it must be aborted instead. After KafkaTimeout nobody knows: call it
        again."""
        self._thread.run(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        """Drop what was not sent, and make sure that nobody sees the rest."""
        self._thread.run(self._producer.abort_transaction())

    def send_offsets(
        self, offsets: Offsets | Any, group_metadata: GroupMember | str | Any = None
    ) -> None:
        """Commit a group's offsets with the transaction: `send_offsets(consumer)` for where that
        consumer is, or a mapping of partitions to offsets and the group's id or its consumer's
        `group_metadata()`."""
        consumer: Any = offsets
        if hasattr(consumer, "assignment"):
            group_metadata = group_metadata or consumer.group_metadata()
            offsets = {tp: consumer.position(tp) for tp in consumer.assignment()}
        self._thread.run(self._producer.send_offsets(offsets, group_metadata))

    def flush(self, timeout_s: float | None = None) -> None:
        """Send everything that waits now, and wait until its fate is known; KafkaTimeout after
        `timeout_s`. Failures are told by the records' futures."""
        self._thread.run(self._producer.flush(timeout_s))

    def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """The partitions of a topic, by their number."""
        return self._thread.run(self._producer.partitions_for(topic))

    def close(self, timeout_s: float | None = None) -> None:
        """Send what waits, for at most `timeout_s` (as long as it takes), and end. What could not
        be sent fails with ClientClosed. A transaction that is open is aborted."""
        if self._thread.is_alive:
            try:
                self._thread.run(self._producer.close(timeout_s))
            finally:
                self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
