"""Future of one record: its batch, and its index there.

A future is cheap: the batch holds the outcome of all its records, and a callback is registered only
when a caller waits. The same class serves threads (`result`) and coroutines (`await`)."""

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
    """Position of a record that the broker acknowledged."""

    topic: str
    """Topic of the record."""
    partition: int
    """Partition of the record."""
    offset: int
    """Offset of the record, or -1 with `acks=0`."""
    timestamp: int
    """Milliseconds since the epoch: the record's, or the broker's for LogAppendTime topics."""


class RecordFuture:
    """Future for the acknowledgement of one record.

    `result()` waits for it in a thread; in a coroutine, `await` the future itself. Failures that
    are retriable are retried until `delivery.timeout.ms` before the future fails.
    """

    __slots__ = ("_batch", "_index", "_timestamp")

    def __init__(self, batch: ProducerBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def done(self) -> bool:
        """Return whether the record is acknowledged or has failed."""
        return self._final_batch().is_done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait until the record is acknowledged.

        Args:
            timeout_s: Seconds to wait. None waits without limit.

        Returns:
            Topic, partition, offset and timestamp of the record.

        Raises:
            KafkaTimeout: The record was not acknowledged within `timeout_s`. It may still be
                acknowledged later.
            KafkaError: The record failed.
        """
        self._wait(timeout_s)
        return self._outcome()

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait until the record is acknowledged or has failed, and return the failure.

        Args:
            timeout_s: Seconds to wait. None waits without limit.

        Returns:
            The exception, or None if the record was acknowledged.

        Raises:
            KafkaTimeout: Neither happened within `timeout_s`.
        """
        self._wait(timeout_s)
        batch = self._final_batch()
        return batch.error_of(self._index)

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call a function when the record is acknowledged or has failed.

        It runs in the producer's own thread, or at once if the record is done already. Exceptions
        that it raises are logged.

        Args:
            callback: Function that takes the future.

        Example:
            future.add_done_callback(lambda done: print(done.exception() or done.result()))
        """
        batch = self._final_batch()
        if not batch.add_callback(self._index, lambda: _call(callback, self)):
            _call(callback, self)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._final_batch().is_done:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self.add_done_callback(lambda _: _wake(loop, waiter))
            yield from waiter
        return self._outcome()

    def __repr__(self) -> str:
        batch = self._final_batch()
        where = f"{batch.topic}-{batch.partition}"
        if not batch.is_done:
            return f"<RecordFuture {where} pending>"
        error = batch.error_of(self._index)
        return f"<RecordFuture {where} {error!r}>" if error else f"<RecordFuture {self._outcome()}>"

    def _outcome(self) -> RecordMetadata:
        batch = self._final_batch()
        error = batch.error_of(self._index)
        if error is not None:
            raise error
        offset = -1 if batch.base_offset < 0 else batch.base_offset + self._index
        timestamp = self._timestamp if batch.append_time_ms < 0 else batch.append_time_ms
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp)

    def _wait(self, timeout_s: float | None) -> None:
        if self._final_batch().is_done:
            return
        event = threading.Event()
        self.add_done_callback(lambda _: event.set())
        if not event.wait(timeout_s):
            last_error = self._final_batch().last_error
            reason = (
                "" if last_error is None else f"; last error {last_error.code.name}: {last_error}"
            )
            raise KafkaTimeout(
                f"the record was not acknowledged within {timeout_s:g} s{reason}"
            ) from last_error

    def _final_batch(self) -> ProducerBatch:
        """Return the batch that holds the record now, in case the first one was split."""
        batch = self._batch
        while batch.parts is not None:
            batch, self._index = batch.part_of(self._index)
            self._batch = batch
        return batch


def _call(callback: Callable[[RecordFuture], object], future: RecordFuture) -> None:
    try:
        callback(future)
    except Exception:
        logger.exception("a callback of a RecordFuture raised")


def _wake(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    try:
        loop.call_soon_threadsafe(_set, waiter)
    except RuntimeError:
        pass  # the loop is closed, so there is nothing to wake


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
