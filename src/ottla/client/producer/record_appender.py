"""Acceptance of records into the accumulator: topic, serializers, partition, size and memory.

`try_append` never waits. It returns the record's future, or an object that describes what is
missing (`NeedTopic`, `NeedMemory`); the asyncio producer awaits that, and the blocking producer
waits for it in the caller's thread. `try_append` raises if the record itself is invalid, and then
has not accepted any part of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from ottla.client.cluster import Cluster
from ottla.client.errors import (
    BufferFull,
    ClientClosed,
    InvalidConfig,
    RecordTooLarge,
    UnknownTopic,
)
from ottla.client.metadata import ClusterMetadata, TopicMetadata
from ottla.client.producer.accumulator import (
    Accumulator,
    BufferExhausted,
    PartitionQueue,
    Reservation,
)
from ottla.client.producer.batch import (
    MAX_RECORD_OVERHEAD,
    Headers,
    ProducerBatch,
    record_bound,
)
from ottla.client.producer.config import ProducerConfig
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.partitioners import (
    MAX_CACHED_BYTES,
    Partitioner,
    cached_hash,
    next_sticky,
    partition_of,
)
from ottla.client.producer.record_fields import (
    HeadersInput,
    checked_headers,
    checked_timestamp,
    serialize,
)
from ottla.client.serializers import Serializer
from ottla.wire.records.batch import HEADER_SIZE

MAX_FILLED_BYTES = 128 * 1024
MAX_FILLED_BATCHES = 16
"""Limits on the batches to fill before yielding to the sender. Running it after each batch costs a
third more."""


class NeedTopic:
    """The topic or the partition is unknown: fetch metadata, then append the record again."""

    __slots__ = ("topic", "partition")

    def __init__(self, topic: str, partition: int | None) -> None:
        self.topic = topic
        self.partition = partition


class NeedMemory:
    """`buffer.memory` is full: reserve `needed_bytes`, then pass this to `append_reserved`."""

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
    __slots__ = ("metadata", "queues", "sticky", "sticky_bytes", "sticky_batch")

    def __init__(
        self, metadata: TopicMetadata, queues: list[PartitionQueue], sticky: PartitionQueue
    ) -> None:
        self.metadata = metadata
        self.queues = queues
        self.sticky = sticky
        """Partition that currently receives the records without a key."""
        self.sticky_bytes = 0
        """Bytes of the batches that this partition has sent since it became the sticky one."""
        self.sticky_batch: ProducerBatch | None = None
        """Batch that was last opened for this partition and is not counted yet."""


class RecordAppender:
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
        self.should_yield = False
        """Enough batches are filled to let the sender run. The caller that does so clears this."""
        self._filled = 0
        max_batches = MAX_FILLED_BYTES // max(config.batch_size, 1)
        self._max_filled = max(1, min(max_batches, MAX_FILLED_BATCHES))
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
        self._max_block_ms = config.max_block_ms
        self._max_bytes = min(config.max_request_size, config.buffer_memory)
        self._max_bound = self._max_bytes - HEADER_SIZE
        self._is_plain = key_serializer is None and value_serializer is None
        self._is_default = partitioner is None and not config.partitioner_ignore_keys
        self._lock = accumulator.lock
        self._random = random.Random()
        self._topics: dict[str, _TopicState] = {}
        self._current: dict[str, _TopicState] = {}
        """Topics that match the newest metadata. Empty while records are rejected."""
        self._rejection: BaseException | None = None
        self.reject_with(ClientClosed("the producer is not started"))
        cluster.on_metadata.append(self._metadata_changed)

    # ----------------------------------------------------------------------------- rejection

    @property
    def rejection(self) -> BaseException | None:
        """The exception that `try_append` raises while the producer accepts no records."""
        return self._rejection

    def reject_with(self, reason: BaseException | None) -> None:
        self._rejection = reason
        self._current.clear()

    def close(self) -> None:
        """Reject all records from now on."""
        self.reject_with(ClientClosed("the producer is closed"))
        if self._metadata_changed in self._cluster.on_metadata:
            self._cluster.on_metadata.remove(self._metadata_changed)

    def _metadata_changed(self, _: ClusterMetadata) -> None:
        self._current.clear()

    # ------------------------------------------------------------------------------- records

    def try_append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersInput | None,
        partition: int | None,
        timestamp: int | None,
        priority: int | None,
    ) -> RecordFuture | NeedTopic | NeedMemory:
        # Optimized for the common case: bytes, default partitioner, room in the open batch.
        state = self._current.get(topic)
        if state is None:
            state = self._find(topic)
            if state is None:
                return NeedTopic(topic, None)
        header_pairs: Headers = ()
        key_bytes: bytes | None = key
        value_bytes: bytes | None = value
        if self._is_plain and type(value) is bytes and not headers and key is None:
            bound = MAX_RECORD_OVERHEAD + len(value)
        elif self._is_plain and type(value) is bytes and not headers and type(key) is bytes:
            bound = MAX_RECORD_OVERHEAD + len(value) + len(key)
        else:
            key_bytes = serialize(self._key_serializer, key, topic, "key")
            value_bytes = serialize(self._value_serializer, value, topic, "value")
            if headers:
                header_pairs = checked_headers(headers, topic)
            bound = record_bound(key_bytes, value_bytes, header_pairs)
        if bound > self._max_bound:
            raise self._too_large(topic, bound)
        timestamp = int(time.time() * 1000) if timestamp is None else checked_timestamp(timestamp)
        if partition is None and priority is None and self._is_default:
            if key_bytes is None:
                queue = state.sticky
            elif len(key_bytes) <= MAX_CACHED_BYTES:
                queue = state.queues[cached_hash(key_bytes) % len(state.queues)]
            else:
                queue = state.queues[partition_of(key_bytes, len(state.queues))]
        else:
            chosen = self._choose_queue(state, key, value, key_bytes, partition, priority)
            if chosen is None:
                return NeedTopic(topic, partition)
            queue = chosen
        with self._lock:
            batch = queue.open
            if batch is not None and len(batch.buffer) + bound <= batch.limit:
                index = batch.append(key_bytes, value_bytes, header_pairs, timestamp)
                return RecordFuture(batch, index, timestamp)
        return self._open_batch(
            state, queue, key_bytes, value_bytes, header_pairs, timestamp, bound
        )

    def _open_batch(
        self,
        state: _TopicState,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        bound: int,
    ) -> RecordFuture | NeedMemory:
        """Append a record that the open batch has no room for, or for which there is none."""
        if queue is state.sticky:
            queue = self._next_sticky(state, bound)
        outcome, has_news = self._accumulator.append(
            queue, key, value, headers, timestamp, bound, time.monotonic
        )
        if has_news:
            self._filled += 1
            if self._filled >= self._max_filled:
                self._filled = 0
                self.should_yield = True
            self._wake_sender()
        if isinstance(outcome, BufferExhausted):
            needed = outcome.needed_bytes
            return NeedMemory(queue, key, value, headers, timestamp, bound, needed)
        if queue is state.sticky:
            state.sticky_batch = queue.open
        return outcome

    def append_reserved(self, record: NeedMemory, reservation: Reservation) -> RecordFuture:
        """Append a record for which memory was reserved."""
        if self._rejection is not None:
            self._accumulator.cancel(reservation)
            raise self._rejection
        outcome, _ = self._accumulator.append(
            record.queue, record.key, record.value, record.headers, record.timestamp,
            record.bound, time.monotonic, reservation,
        )  # fmt: skip
        self._wake_sender()
        assert isinstance(outcome, RecordFuture)
        return outcome

    def reserve(self, size_bytes: int, notify: Callable[[], None]) -> Reservation:
        reservation = self._accumulator.reserve(size_bytes, notify)
        if not reservation.granted:
            self._wake_sender()  # sends lingering batches at once, which frees their memory
        return reservation

    def cancel_reservation(self, queue: PartitionQueue, reservation: Reservation) -> BufferFull:
        """Cancel a reservation that was not granted in time, and return the error."""
        self._accumulator.cancel(reservation)
        return BufferFull(
            f"{queue.topic}-{queue.partition}: buffer.memory ({self._buffer_memory} bytes) stayed "
            f"full for longer than max.block.ms ({self._max_block_ms})",
            topic=queue.topic,
            partition=queue.partition,
        )

    @property
    def has_partitioner(self) -> bool:
        return self._partitioner is not None

    def queue_of(self, topic: str, partition: int) -> PartitionQueue:
        """Return the queue of a partition of a topic whose metadata was fetched."""
        state = self._current.get(topic) or self._find(topic) or self._topics.get(topic)
        if state is None or partition >= len(state.queues):
            raise UnknownTopic(
                f"topic {topic!r} no longer has a partition {partition}", topic=topic
            )
        return state.queues[partition]

    def append_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Add a batch of table rows for which memory was reserved."""
        self.append_batches([(queue, batch)])

    def append_batches(self, batches: Sequence[tuple[PartitionQueue, ProducerBatch]]) -> None:
        """Add batches of several partitions at once, so that they can share requests."""
        if self._rejection is not None:
            self._accumulator.release(sum(batch.reserved_bytes for _, batch in batches))
            raise self._rejection
        for queue, batch in batches:
            self._accumulator.add_batch(queue, batch)
        self._wake_sender()

    # ----------------------------------------------------------------------------- internals

    def _find(self, topic: str) -> _TopicState | None:
        """Return the state of a topic, updated to the newest metadata, or None if it is unknown."""
        if self._rejection is not None:
            raise self._rejection
        while True:
            metadata = self._cluster.metadata.topics.get(topic)
            if metadata is None or not metadata.available:
                return None
            state = self._update_topic(metadata)
            self._current[topic] = state
            # Newer metadata may have arrived and cleared `_current` just before the assignment.
            if self._cluster.metadata.topics.get(topic) is metadata:
                return state

    def _update_topic(self, metadata: TopicMetadata) -> _TopicState:
        with self._accumulator.lock:
            state = self._topics.get(metadata.name)
            if state is None:
                state = self._topics[metadata.name] = _TopicState(
                    metadata, [], _no_partition(metadata)
                )
            state.metadata = metadata
            known = len(state.queues)
            state.queues += [
                PartitionQueue(metadata.name, partition)
                for partition in range(known, metadata.partition_count)
            ]
            # A topic that was deleted and recreated may have fewer partitions.
            if known > metadata.partition_count:
                state.queues = state.queues[: metadata.partition_count]
                state.sticky = _no_partition(metadata)
            return state

    def _choose_queue(
        self,
        state: _TopicState,
        key: Any,
        value: Any,
        key_bytes: bytes | None,
        partition: int | None,
        priority: int | None,
    ) -> PartitionQueue | None:
        """Return the queue for a record, or None if the partition that it names does not exist."""
        if partition is not None:
            return state.queues[partition] if 0 <= partition < len(state.queues) else None
        if self._partitioner is not None:
            return self._call_partitioner(state, key, value, key_bytes, priority)
        if priority is not None:
            raise InvalidConfig(
                "Sending with a priority needs a producer with a PriorityPartitioner."
            )
        if key_bytes is not None and not self._ignore_keys:
            return state.queues[partition_of(key_bytes, len(state.queues))]
        return state.sticky

    def _call_partitioner(
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
                f"the partitioner chose partition {chosen!r}, but topic "
                f"{state.metadata.name!r} has {len(state.queues)} partitions",
                topic=state.metadata.name,
            )
        return state.queues[chosen]

    def _next_sticky(self, state: _TopicState, bound: int) -> PartitionQueue:
        """Return the queue in which the next batch of records without a key starts.

        A partition is kept until it has received `batch.size` bytes, possibly in several smaller
        batches."""
        current = state.sticky
        with self._lock:
            batch = current.open
            if batch is not None:
                if len(batch.buffer) + bound <= batch.limit:
                    return current
                current.open = None
                state.sticky_bytes = self._batch_size
        if state.sticky_batch is not None:
            state.sticky_bytes += state.sticky_batch.sent_bytes
            state.sticky_batch = None
        if state.sticky_bytes < self._batch_size and current.partition in state.metadata.available:
            return current
        sizes = [len(queue.batches) for queue in state.queues] if self._is_adaptive else None
        chosen = next_sticky(state.metadata, current.partition, sizes, self._random)
        state.sticky, state.sticky_bytes = state.queues[chosen], 0
        return state.sticky

    def _too_large(self, topic: str, bound: int) -> RecordTooLarge:
        if bound + HEADER_SIZE > self._max_request_size:
            limit = f"max.request.size ({self._max_request_size})"
        else:
            limit = f"buffer.memory ({self._buffer_memory})"
        return RecordTooLarge(
            f"a record of {bound} bytes for topic {topic!r} exceeds {limit}", topic=topic
        )


def _no_partition(topic: TopicMetadata) -> PartitionQueue:
    """Return a placeholder for the time before the first sticky partition is chosen."""
    return PartitionQueue(topic.name, -1)
