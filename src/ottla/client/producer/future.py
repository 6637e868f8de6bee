"""A handle on the fate of one record: the batch it is in, and its place there.

It costs next to nothing until somebody asks: a batch knows the fate of all its records, and only
who waits leaves a trace in it. One class serves threads (`result`) and coroutines (`await`)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.errors import KafkaTimeout

if TYPE_CHECKING:
    from ottla.client.producer.batch import ProducerBatch

logger = logging.getLogger(__name__)


class RecordMetadata(NamedTuple):
    """Topic, partition and offset of a written record. The offset is -1 with acks=0."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class RecordFuture:
    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: ProducerBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def done(self) -> bool:
        return self._settle().is_done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for the record to be acknowledged. Raises what became of it instead, or KafkaTimeout
        if that is not known in time (it may still be acknowledged later)."""
        self._wait(timeout_s)
        return self._outcome()

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait likewise; the failure, or None."""
        self._wait(timeout_s)
        batch = self._settle()
        return batch.error_of(self._index)

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call `callback(self)` when the fate is known, in the producer's own thread (at once if it
        is known already). What it raises is logged."""
        batch = self._settle()
        if not batch.add_callback(self._index, lambda: _call(callback, self)):
            _call(callback, self)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._settle().is_done:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self.add_done_callback(lambda _: _wake(loop, waiter))
            yield from waiter
        return self._outcome()

    def __repr__(self) -> str:
        batch = self._settle()
        where = f"{batch.topic}-{batch.partition}"
        if not batch.is_done:
            return f"<RecordFuture {where} pending>"
        error = batch.error_of(self._index)
        return f"<RecordFuture {where} {error!r}>" if error else f"<RecordFuture {self._outcome()}>"

    def _outcome(self) -> RecordMetadata:
        batch = self._settle()
        error = batch.error_of(self._index)
        if error is not None:
            raise error
        offset = -1 if batch.base_offset < 0 else batch.base_offset + self._index
        timestamp = self._timestamp if batch.append_time_ms < 0 else batch.append_time_ms
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp)

    def _wait(self, timeout_s: float | None) -> None:
        if self._settle().is_done:
            return
        event = threading.Event()
        self.add_done_callback(lambda _: event.set())
        if not event.wait(timeout_s):
            refusal = self._settle().last_refusal
            reason = "" if refusal is None else f"; last answer {refusal.code.name}: {refusal}"
            raise KafkaTimeout(
                f"the record was not acknowledged in {timeout_s:g} s{reason}"
            ) from refusal

    def _settle(self) -> ProducerBatch:
        """Follow the record into the smaller batch that it was moved to."""
        batch = self._batch
        while batch.parts is not None:
            batch, self._index = batch.part_of(self._index)
            self._batch = batch
        return batch


def _call(callback: Callable[[RecordFuture], object], future: RecordFuture) -> None:
    try:
        callback(future)
    except Exception:
        logger.exception("a callback of a producer raised")


def _wake(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    try:
        loop.call_soon_threadsafe(_set, waiter)
    except RuntimeError:
        pass  # the loop was closed: nobody waits any more


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
