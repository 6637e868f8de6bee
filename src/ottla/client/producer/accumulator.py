"""The batches that wait to be sent, by partition, and the memory that they take.

A record goes into the open batch of its partition, the last in the queue. A batch is ready when it
is closed (full, or given up by the partitioner), when it has waited for `linger.ms`, or when
somebody waits for it to go: for memory, in `flush`, in `close`. Batches leave a queue in order, one
per request; one that must be sent again goes back to the place that its sequence has.

Memory is reserved for a whole batch when it is opened and given back when its fate is known. Who
finds none waits in line; what is given back goes to the first in line.

Any thread may append; `lock` guards everything here. No loop, no clock: times are arguments."""

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
        """The last batch, while it takes records."""
        self.sequences = PartitionSequences()
        self.in_requests = 0
        """Batches that were sent and not answered."""


class Reservation:
    """A place in the line for memory."""

    __slots__ = ("size_bytes", "granted", "notify")

    def __init__(self, size_bytes: int, notify: Callable[[], None]) -> None:
        self.size_bytes = size_bytes
        self.granted = False
        self.notify = notify
        """Called, in any thread, when the memory is there."""


class Full(NamedTuple):
    """There is no memory for the batch that a record needs."""

    needed_bytes: int


class Accumulator:
    def __init__(self, *, batch_size: int, linger_s: float, buffer_memory: int) -> None:
        self.lock = threading.Lock()
        self.queues: dict[PartitionQueue, None] = {}
        """Those that have batches."""
        self.incomplete: dict[ProducerBatch, PartitionQueue] = {}
        """Every batch whose fate is open, the oldest first."""
        self.flushing = 0
        """How many wait for all batches to go."""
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
    ) -> tuple[RecordFuture | Full, bool]:
        """A record of at most `bound` bytes: its future, and whether the sender has news. What a
        reservation was granted and is not needed after all is given back."""
        with self.lock:
            batch = queue.open
            has_news = False
            if batch is not None and len(batch.buffer) + bound > batch.limit:
                queue.open = batch = None
                has_news = True
            if batch is None:
                size = max(self._batch_size, HEADER_SIZE + bound)
                if reservation is None and (self._waiting or self._available_bytes < size):
                    return Full(size), has_news
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
            granted = [] if reservation is None else self._give_back(reservation.size_bytes)
        for each in granted:
            each.notify()
        return RecordFuture(batch, index, timestamp), has_news

    def add_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A batch that was made elsewhere; its memory is reserved already."""
        with self.lock:
            batch.is_transactional = self.is_transactional
            queue.open = None
            queue.batches.append(batch)
            self.queues[queue] = None
            self.incomplete[batch] = queue

    # --------------------------------------------------------------------------------- memory

    def reserve(self, size_bytes: int, notify: Callable[[], None]) -> Reservation:
        """Stand in line. `notify` may be called before this returns: look at `granted`."""
        reservation = Reservation(size_bytes, notify)
        with self.lock:
            self._waiting.append(reservation)
            granted = self._give_back(0)
        for each in granted:
            each.notify()
        return reservation

    def cancel(self, reservation: Reservation) -> None:
        """Leave the line, or give back what was granted."""
        with self.lock:
            size = reservation.size_bytes if reservation.granted else 0
            reservation.granted = False
            if reservation in self._waiting:
                self._waiting.remove(reservation)
            granted = self._give_back(size)
        for each in granted:
            each.notify()

    def give_back(self, size_bytes: int) -> None:
        with self.lock:
            granted = self._give_back(size_bytes)
        for each in granted:
            each.notify()

    def _give_back(self, size_bytes: int) -> list[Reservation]:
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
        """When the first batch of a queue may go: a time, maybe past, or never while it is empty.
        To be asked with the lock held."""
        if not queue.batches:
            return NEVER_S
        batch = queue.batches[0]
        if batch is not queue.open or self.flushing or self._waiting:
            return batch.not_before_s
        return batch.created_s + self._linger_s

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """The first batch, closed. To be called with the lock held."""
        batch = queue.batches.popleft()
        if queue.open is batch:
            queue.open = None
        if not queue.batches:
            self.queues.pop(queue, None)
        return batch

    def put_back(self, queue: PartitionQueue, batches: Iterable[ProducerBatch]) -> None:
        """Batches to be sent again, where their sequences belong: before all that have none, and
        among those that have one in the order of their first attempt."""
        with self.lock:
            places = {id(each): place for place, each in enumerate(queue.sequences.in_flight)}
            before: list[ProducerBatch] = list(batches)
            while queue.batches and queue.batches[0].has_sequence:
                before.append(queue.batches.popleft())
            before.sort(key=lambda each: places.get(id(each), 0))
            queue.batches.extendleft(reversed(before))
            self.queues[queue] = None

    # ------------------------------------------------------------------------------- the end

    def replace(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """A batch was split: its parts stand for it."""
        with self.lock:
            queue = self.incomplete.pop(batch)
            # As old as the whole was: before all others.
            others = self.incomplete
            self.incomplete = dict.fromkeys(parts, queue)
            self.incomplete.update(others)

    def finish(self, batch: ProducerBatch) -> None:
        """A batch's fate is known, or about to be told: forget it, and give back its memory."""
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
            granted = self._give_back(batch.reserved_bytes)
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
        """When the oldest batch was opened."""
        with self.lock:
            for batch in self.incomplete:
                return batch.created_s
            return NEVER_S
