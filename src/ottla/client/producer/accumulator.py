"""Batches that wait to be sent, by partition, and the memory that they occupy.

A record goes into the open batch of its partition, which is the last one in the queue. A batch is
ready when it is closed (full, or the partitioner moved on), when it has waited for `linger.ms`, or
when a caller waits for memory, in `flush` or in `close`. Batches leave a queue in order, one per
request; a batch that is retried returns to its place in the order of sequences.

Memory is reserved for a whole batch when it is opened, and released when the batch completes. If
there is not enough, callers wait in line; released memory goes to the first in line.

Any thread may append; `lock` guards all state. There is no event loop and no clock here: times are
passed as arguments."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.client.producer.batch import Headers, ProducerBatch
from ottla.client.producer.future import RecordFuture
from ottla.client.producer.idempotence import PartitionSequences
from ottla.wire.records.batch import HEADER_SIZE

NEVER_S = float("inf")


class PartitionQueue:
    __slots__ = ("topic", "partition", "batches", "open", "sequences", "in_requests")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        """The last batch, while it accepts records."""
        self.sequences = PartitionSequences()
        self.in_requests = 0
        """Number of batches that are sent and not answered yet."""


class Reservation:
    """Request for memory, waiting in line or granted."""

    __slots__ = ("size_bytes", "granted", "notify")

    def __init__(self, size_bytes: int, notify: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self.granted = False
        self.notify = notify
        """Called when the memory is granted, in any thread."""


class BufferExhausted(NamedTuple):
    """There is not enough memory to open the batch that a record needs."""

    needed_bytes: int


class Accumulator:
    def __init__(self, *, batch_size: int, linger_s: float, buffer_memory: int) -> None:
        self.lock = threading.Lock()
        self.queues: dict[PartitionQueue, None] = {}
        """Queues that have batches; used as an ordered set."""
        self.incomplete: dict[ProducerBatch, PartitionQueue] = {}
        """Every batch that is neither acknowledged nor failed, oldest first."""
        self.flushing = 0
        """Number of callers that wait until all batches are sent."""
        self.is_transactional = False
        self._batch_size = batch_size
        self._linger_s = linger_s
        self._available_bytes = buffer_memory
        self._waiting: deque[Reservation] = deque()

    # -------------------------------------------------------------------------------- records

    def append(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        bound: int,
        now_s: Callable[[], float],
        reservation: Reservation | None = None,
    ) -> tuple[RecordFuture | BufferExhausted, bool]:
        """Append a record of at most `bound` bytes.

        A granted reservation that turns out not to be needed is released.

        Returns:
            The record's future, or Full; and whether to wake the sender.
        """
        with self.lock:
            batch = queue.open
            has_news = False
            if batch is not None and len(batch.buffer) + bound > batch.limit:
                queue.open = batch = None
                has_news = True
            if batch is None:
                size = max(self._batch_size, HEADER_SIZE + bound)
                if reservation is None and (self._waiting or self._available_bytes < size):
                    return BufferExhausted(size), has_news
                if reservation is None:
                    self._available_bytes -= size
                else:
                    size, reservation = reservation.size_bytes, None
                batch = ProducerBatch(queue.topic, queue.partition, size, size, now_s())
                batch.is_transactional = self.is_transactional
                queue.batches.append(batch)
                queue.open = batch
                self.queues[queue] = None
                self.incomplete[batch] = queue
                has_news = True
            index = batch.append(key, value, headers, timestamp)
            granted = [] if reservation is None else self._release(reservation.size_bytes)
        for each in granted:
            each.notify()
        return RecordFuture(batch, index, timestamp), has_news

    def add_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Add a batch that was built elsewhere and whose memory is reserved already."""
        with self.lock:
            batch.is_transactional = self.is_transactional
            queue.open = None
            queue.batches.append(batch)
            self.queues[queue] = None
            self.incomplete[batch] = queue

    # --------------------------------------------------------------------------------- memory

    def reserve(self, size_bytes: int, notify: Callable[[], None]) -> Reservation:
        """Wait in line for memory. `notify` may be called before this returns: check `granted`."""
        reservation = Reservation(size_bytes, notify)
        with self.lock:
            self._waiting.append(reservation)
            granted = self._release(0)
        for each in granted:
            each.notify()
        return reservation

    def cancel(self, reservation: Reservation) -> None:
        """Leave the line, or release the memory if it was granted."""
        with self.lock:
            size = reservation.size_bytes if reservation.granted else 0
            reservation.granted = False
            if reservation in self._waiting:
                self._waiting.remove(reservation)
            granted = self._release(size)
        for each in granted:
            each.notify()

    def release(self, size_bytes: int) -> None:
        with self.lock:
            granted = self._release(size_bytes)
        for each in granted:
            each.notify()

    def _release(self, size_bytes: int) -> list[Reservation]:
        self._available_bytes += size_bytes
        granted: list[Reservation] = []
        while self._waiting and self._waiting[0].size_bytes <= self._available_bytes:
            reservation = self._waiting.popleft()
            self._available_bytes -= reservation.size_bytes
            reservation.granted = True
            granted.append(reservation)
        return granted

    @property
    def available_bytes(self) -> int:
        return self._available_bytes

    # -------------------------------------------------------------------------------- sending

    def ready_at_s(self, queue: PartitionQueue) -> float:
        """Return the time from which the first batch of a queue may be sent.

        It may be in the past; it is NEVER_S for an empty queue. The caller must hold the lock."""
        if not queue.batches:
            return NEVER_S
        batch = queue.batches[0]
        if batch is not queue.open or self.flushing or self._waiting:
            return batch.not_before_s
        return batch.created_s + self._linger_s

    def pop_ready(self, queue: PartitionQueue) -> ProducerBatch:
        """Remove, close and return the first batch. The caller must hold the lock."""
        batch = queue.batches.popleft()
        if queue.open is batch:
            queue.open = None
        if not queue.batches:
            self.queues.pop(queue, None)
        return batch

    def requeue(self, queue: PartitionQueue, batches: Iterable[ProducerBatch]) -> None:
        """Return batches to the queue for a retry, in the order of their sequences.

        They come before all batches that have no sequence yet."""
        with self.lock:
            places = {id(each): place for place, each in enumerate(queue.sequences.in_flight)}
            before: list[ProducerBatch] = list(batches)
            while queue.batches and queue.batches[0].has_sequence:
                before.append(queue.batches.popleft())
            before.sort(key=lambda each: places.get(id(each), 0))
            queue.batches.extendleft(reversed(before))
            self.queues[queue] = None

    # ---------------------------------------------------------------------------- completion

    def replace(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Replace a batch that was split by its parts."""
        with self.lock:
            queue = self.incomplete.pop(batch)
            # The parts are as old as the whole batch was, so they come first.
            others = self.incomplete
            self.incomplete = dict.fromkeys(parts, queue)
            self.incomplete.update(others)

    def finish(self, batch: ProducerBatch) -> None:
        """Forget a batch that completes now, and release its memory."""
        with self.lock:
            queue = self.incomplete.pop(batch, None)
            if queue is None:
                return
            if not batch.in_request and batch in queue.batches:
                queue.batches.remove(batch)
                if queue.open is batch:
                    queue.open = None
                if not queue.batches:
                    self.queues.pop(queue, None)
            granted = self._release(batch.reserved_bytes)
        for each in granted:
            each.notify()

    def expired(self, created_before_s: float) -> list[ProducerBatch]:
        with self.lock:
            found: list[ProducerBatch] = []
            for batch in self.incomplete:
                if batch.created_s > created_before_s:
                    break
                found.append(batch)
            return found

    def oldest_s(self) -> float:
        """Return the time at which the oldest incomplete batch was opened."""
        with self.lock:
            for batch in self.incomplete:
                return batch.created_s
            return NEVER_S
