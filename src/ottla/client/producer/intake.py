"""A record's way into the accumulator: topic, serialisers, partition, size, memory.

`offer` never waits. It returns the record's future, or says what is missing (`NeedTopic`,
`NeedMemory`), which the asyncio producer awaits and the blocking one waits for in its thread. What
is wrong with the record itself is raised: nothing of it was taken then."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ottla.base.errors import ErrorCode, UserError
from ottla.client.cluster import Cluster
from ottla.client.errors import (
    BufferFull,
    ClientClosed,
    InvalidConfig,
    RecordTooLarge,
    SerializationFailed,
    UnknownTopic,
)
from ottla.client.metadata import TopicMetadata
from ottla.client.murmur2 import partition_of
from ottla.client.producer.accumulator import Accumulator, Full, PartitionQueue, Reservation
from ottla.client.producer.batch import MAX_RECORD_OVERHEAD, Headers, record_bound
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.partitioners import Partitioner, next_sticky
from ottla.client.serializers import Serializer
from ottla.wire.records.batch import HEADER_SIZE

HeadersGiven = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
MAX_TIMESTAMP = (1 << 63) - 1


class NeedTopic:
    """The topic, or the partition, is not known: ask for it, then offer again."""

    __slots__ = ("topic", "partition")

    def __init__(self, topic: str, partition: int | None) -> None:
        self.topic = topic
        self.partition = partition


class NeedMemory:
    """`buffer.memory` is full: reserve `needed_bytes`, then `place` what is here."""

    __slots__ = ("queue", "key", "value", "headers", "timestamp", "bound", "needed_bytes")

    def __init__(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        bound: int,
        needed_bytes: int,
    ) -> None:
        self.queue = queue
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.bound = bound
        self.needed_bytes = needed_bytes


class _TopicState:
    __slots__ = ("metadata", "queues", "sticky", "sticky_bytes")

    def __init__(self, metadata: TopicMetadata, queues: list[PartitionQueue]) -> None:
        self.metadata = metadata
        self.queues = queues
        self.sticky: PartitionQueue | None = None
        """Where records without key go now."""
        self.sticky_bytes = 0
        """What went there in batches that were sent before they were full."""


class Intake:
    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        wake_sender: Callable[[], None],
        *,
        key_serializer: Serializer | None,
        value_serializer: Serializer | None,
        partitioner: Partitioner | None,
    ) -> None:
        self.refusal: BaseException | None = ClientClosed("the producer is not started")
        """Why no record is taken now."""
        self.woke_sender = False
        """Since somebody last cleared it: a batch was filled."""
        self._cluster = cluster
        self._accumulator = accumulator
        self._wake_sender = wake_sender
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._ignore_keys = config.partitioner_ignore_keys
        self._is_adaptive = config.partitioner_adaptive_partitioning_enable
        self._batch_size = config.batch_size
        self._max_request_size = config.max_request_size
        self._buffer_memory = config.buffer_memory
        self._max_bytes = min(config.max_request_size, config.buffer_memory)
        self._topics: dict[str, _TopicState] = {}
        self._chance = random.Random()

    def offer(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersGiven | None,
        partition: int | None,
        timestamp: int | None,
        priority: int | None,
    ) -> RecordFuture | NeedTopic | NeedMemory:
        if self.refusal is not None:
            raise self.refusal
        state = self._topics.get(topic)
        metadata = self._cluster.metadata.topics.get(topic)
        if metadata is None or not metadata.available:
            return NeedTopic(topic, None)
        if state is None or state.metadata is not metadata:
            state = self._know(metadata)
        key_bytes = key
        if key is not None and (type(key) is not bytes or self._key_serializer is not None):
            key_bytes = _serialize(self._key_serializer, key, topic, "key")
        value_bytes = value
        if value is not None and (type(value) is not bytes or self._value_serializer is not None):
            value_bytes = _serialize(self._value_serializer, value, topic, "value")
        given = () if not headers else _headers(headers, topic)
        bound = MAX_RECORD_OVERHEAD + len(key_bytes or b"") + len(value_bytes or b"")
        if given:
            bound += record_bound(None, None, given)
        if bound + HEADER_SIZE > self._max_bytes:
            raise self._too_large(topic, bound)
        queue = self._choose(state, key, value, key_bytes, partition, priority, bound)
        if queue is None:
            return NeedTopic(topic, partition)
        timestamp = int(time.time() * 1000) if timestamp is None else _checked(timestamp)
        outcome, has_news = self._accumulator.append(
            queue, key_bytes, value_bytes, given, timestamp, bound, time.monotonic
        )
        if has_news:
            self.woke_sender = True
            self._wake_sender()
        if type(outcome) is RecordFuture:
            return outcome
        assert isinstance(outcome, Full)
        return NeedMemory(
            queue, key_bytes, value_bytes, given, timestamp, bound, outcome.needed_bytes
        )

    def place(self, record: NeedMemory, reservation: Reservation) -> RecordFuture:
        """A record for which memory was reserved."""
        if self.refusal is not None:
            self._accumulator.cancel(reservation)
            raise self.refusal
        outcome, _ = self._accumulator.append(
            record.queue, record.key, record.value, record.headers, record.timestamp,
            record.bound, time.monotonic, reservation,
        )  # fmt: skip
        self._wake_sender()
        assert isinstance(outcome, RecordFuture)
        return outcome

    def reserve(self, record: NeedMemory, notify: Callable[[], None]) -> Reservation:
        reservation = self._accumulator.reserve(record.needed_bytes, notify)
        self._wake_sender()  # batches that linger go now: somebody needs their memory
        return reservation

    def give_up(self, record: NeedMemory, reservation: Reservation, waited_ms: int) -> BufferFull:
        """No memory came in time."""
        self._accumulator.cancel(reservation)
        return BufferFull(
            f"{record.queue.topic}-{record.queue.partition}: buffer.memory "
            f"({self._buffer_memory} bytes) stayed full for {waited_ms} ms",
            topic=record.queue.topic,
            partition=record.queue.partition,
        )

    def queue_of(self, topic: TopicMetadata, partition: int) -> PartitionQueue:
        state = self._topics.get(topic.name)
        if state is None or state.metadata is not topic:
            state = self._know(topic)
        return state.queues[partition]

    # ------------------------------------------------------------------------------- details

    def _know(self, metadata: TopicMetadata) -> _TopicState:
        with self._accumulator.lock:
            state = self._topics.get(metadata.name)
            if state is None:
                state = self._topics[metadata.name] = _TopicState(metadata, [])
            state.metadata = metadata
            known = len(state.queues)
            state.queues += [
                PartitionQueue(metadata.name, partition)
                for partition in range(known, metadata.partition_count)
            ]
            # A topic that was deleted and created anew may have fewer.
            if known > metadata.partition_count:
                state.queues = state.queues[: metadata.partition_count]
                state.sticky = None
            return state

    def _choose(
        self,
        state: _TopicState,
        key: Any,
        value: Any,
        key_bytes: bytes | None,
        partition: int | None,
        priority: int | None,
        bound: int,
    ) -> PartitionQueue | None:
        """Where a record goes; None: there is no partition of the number that it names."""
        if partition is not None:
            return state.queues[partition] if 0 <= partition < len(state.queues) else None
        if self._partitioner is not None:
            return self._ask_partitioner(state, key, value, key_bytes, priority)
        if priority is not None:
            raise InvalidConfig("A priority needs a producer with a PriorityPartitioner.")
        if key_bytes is not None and not self._ignore_keys:
            return state.queues[partition_of(key_bytes, len(state.queues))]
        sticky = state.sticky
        if sticky is None or (batch := sticky.open) is None:
            return self._next_sticky(state)
        if len(batch.buffer) + bound > batch.limit:
            return self._leave_full(state)
        return sticky

    def _ask_partitioner(
        self,
        state: _TopicState,
        key: Any,
        value: Any,
        key_bytes: bytes | None,
        priority: int | None,
    ) -> PartitionQueue:
        assert self._partitioner is not None
        chosen = self._partitioner.partition(state.metadata, key, value, key_bytes, priority)
        if not 0 <= chosen < len(state.queues):
            raise UnknownTopic(
                f"the partitioner chose partition {chosen!r} of {state.metadata.name}, "
                f"which has {len(state.queues)}",
                topic=state.metadata.name,
            )
        return state.queues[chosen]

    def _leave_full(self, state: _TopicState) -> PartitionQueue:
        """The open batch has no room: it is closed, and the turn passes."""
        assert state.sticky is not None
        self._accumulator.close_batch(state.sticky)
        state.sticky_bytes = self._batch_size
        return self._next_sticky(state)

    def _next_sticky(self, state: _TopicState) -> PartitionQueue:
        """Stay until a batch's worth of bytes went there, though in smaller batches."""
        current = state.sticky
        if current is not None and state.sticky_bytes < self._batch_size:
            last = current.batches[-1] if current.batches else None
            state.sticky_bytes += self._batch_size // 4 if last is None else last.size_bytes
            if current.partition in state.metadata.available:
                return current
        sizes = [len(queue.batches) for queue in state.queues] if self._is_adaptive else None
        before = -1 if current is None else current.partition
        chosen = state.queues[next_sticky(state.metadata, before, sizes, self._chance)]
        state.sticky, state.sticky_bytes = chosen, 0
        return chosen

    def _too_large(self, topic: str, bound: int) -> RecordTooLarge:
        if bound + HEADER_SIZE > self._max_request_size:
            limit = f"max.request.size ({self._max_request_size})"
        else:
            limit = f"buffer.memory ({self._buffer_memory})"
        return RecordTooLarge(f"a record for {topic} of {bound} bytes exceeds {limit}", topic=topic)


def _serialize(serializer: Serializer | None, given: Any, topic: str, what: str) -> bytes | None:
    if given is None:
        return None
    try:
        result = given if serializer is None else serializer(given)
        if isinstance(result, bytes):
            return result
        if isinstance(result, bytearray | memoryview):
            return bytes(result)
        if isinstance(result, str):
            return result.encode()
    except Exception as error:
        raise SerializationFailed(
            f"the {what} of a record for {topic} cannot be serialised: {error}",
            code=ErrorCode.INVALID_RECORD,
            topic=topic,
        ) from error
    hint = f"give the producer a {what}_serializer" if serializer is None else "it must be bytes"
    raise SerializationFailed(
        f"the {what} of a record for {topic} is {type(result).__name__}: {hint}",
        code=ErrorCode.INVALID_RECORD,
        topic=topic,
    )


def _checked(timestamp: int) -> int:
    if not 0 <= timestamp <= MAX_TIMESTAMP:
        raise UserError(f"A timestamp is milliseconds since 1970, not {timestamp}.")
    return timestamp


def _headers(given: HeadersGiven, topic: str) -> Headers:
    pairs = given.items() if isinstance(given, Mapping) else given
    try:
        return [
            (name, content if content is None or type(content) is bytes else _content(content))
            for name, content in pairs
            if _is_text(name)
        ]
    except (TypeError, ValueError) as error:
        raise SerializationFailed(
            f"headers of a record for {topic} must be pairs of a text and bytes: {error}",
            code=ErrorCode.INVALID_RECORD,
            topic=topic,
        ) from error


def _content(content: Any) -> bytes:
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"{type(content).__name__} is not bytes")


def _is_text(name: Any) -> bool:
    if not isinstance(name, str):
        raise TypeError(f"{type(name).__name__} is not a text")
    return True
