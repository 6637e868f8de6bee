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
from types import TracebackType
from typing import Any, Self

from ottla.client.blocking import LoopThread
from ottla.client.config import Profile
from ottla.client.metadata import PartitionMetadata
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.intake import HeadersGiven, NeedMemory, NeedTopic
from ottla.client.producer.partitioners import Partitioner, PartitionFunction
from ottla.client.producer.producer import AsyncProducer
from ottla.client.serializers import Serializer


class Producer:
    def __init__(
        self,
        bootstrap: str | list[str] | None = None,
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
        self._intake = self._producer._intake
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
                if intake.woke_sender:
                    # A batch is full: give the sender's thread the interpreter, or it waits for
                    # its turn while we fill the next.
                    intake.woke_sender = False
                    time.sleep(0)
                return outcome
            if isinstance(outcome, NeedTopic):
                self._thread.run(self._producer.find_topic(outcome))
            elif isinstance(outcome, NeedMemory):
                return self._wait_for_memory(outcome)

    def _wait_for_memory(self, record: NeedMemory) -> RecordFuture:
        granted = threading.Event()
        reservation = self._intake.reserve(record, granted.set)
        max_block_ms = self.config.max_block_ms
        try:
            is_granted = granted.wait(max_block_ms / 1000)
        except BaseException:
            self._producer._accumulator.cancel(reservation)
            raise
        if not is_granted and not reservation.granted:
            raise self._intake.give_up(record, reservation, max_block_ms)
        return self._intake.place(record, reservation)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send everything that waits now, and wait until its fate is known; KafkaTimeout after
        `timeout_s`. Failures are told by the records' futures."""
        self._thread.run(self._producer.flush(timeout_s))

    def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """The partitions of a topic, by their number."""
        return self._thread.run(self._producer.partitions_for(topic))

    def close(self, timeout_s: float | None = None) -> None:
        """Send what waits, for at most `timeout_s` (as long as it takes), and end. What could not
        be sent fails with ClientClosed."""
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
