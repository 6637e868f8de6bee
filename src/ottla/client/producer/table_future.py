"""Future of the rows of a table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ottla.client.errors import KafkaTimeout
from ottla.client.producer.batch import ProducerBatch
from ottla.client.producer.completion import call_when_complete, final_batches, wait_until_complete


class PartitionOffsets(NamedTuple):
    """Range of offsets that the rows have in one partition. Other records may lie in between."""

    first_offset: int
    last_offset: int
    record_count: int


class TableMetadata(NamedTuple):
    """Positions of a table's rows that the brokers acknowledged."""

    topic: str
    """Topic of the records."""
    record_count: int
    """Number of records."""
    offsets: dict[int, PartitionOffsets]
    """First and last offset in each partition; -1 with `acks=0`."""


class TableFuture:
    """Future for the acknowledgement of all rows of a table.

    `result()` waits for it in a thread; in a coroutine, `await` the future itself.
    """

    def __init__(self, topic: str, batches: list[ProducerBatch]) -> None:
        self.topic = topic
        self.record_count = sum(batch.count for batch in batches)
        self._batches = batches

    def done(self) -> bool:
        """Return whether each row is acknowledged or has failed."""
        return all(batch.is_done for batch in final_batches(self._batches))

    def result(self, timeout_s: float | None = None) -> TableMetadata:
        """Wait until each row is acknowledged or has failed.

        Args:
            timeout_s: Seconds to wait. None waits without limit.

        Returns:
            Number of records and their offsets in each partition.

        Raises:
            KafkaTimeout: Rows were still pending after `timeout_s`.
            KafkaError: A row failed; this is the first failure in the order of the table.
        """
        self._wait(timeout_s)
        return self._outcome()

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait until each row is acknowledged or has failed, and return the first failure.

        Args:
            timeout_s: Seconds to wait. None waits without limit.

        Returns:
            The first exception in the order of the table, or None if all rows were acknowledged.

        Raises:
            KafkaTimeout: Rows were still pending after `timeout_s`.
        """
        self._wait(timeout_s)
        return self._error()

    def add_done_callback(self, callback: Callable[[TableFuture], object]) -> None:
        """Call a function when each row is acknowledged or has failed.

        It runs in the producer's own thread, or at once if all rows are done already.

        Args:
            callback: Function that takes the future.
        """
        call_when_complete(self._batches, lambda: callback(self))

    def __await__(self) -> Generator[Any, None, TableMetadata]:
        yield from wait_until_complete(self._batches).__await__()
        return self._outcome()

    def _wait(self, timeout_s: float | None) -> None:
        event = threading.Event()
        call_when_complete(self._batches, event.set)
        if not event.wait(timeout_s):
            raise KafkaTimeout(f"not all rows were acknowledged within {timeout_s:g} s")

    def _error(self) -> BaseException | None:
        for batch in final_batches(self._batches):
            if batch.error is not None:
                return batch.error_of(min(batch.record_errors, default=0))
        return None

    def _outcome(self) -> TableMetadata:
        error = self._error()
        if error is not None:
            raise error
        found: dict[int, PartitionOffsets] = {}
        for batch in final_batches(self._batches):
            last = -1 if batch.base_offset < 0 else batch.base_offset + batch.count - 1
            first, _, count = found.get(batch.partition, (batch.base_offset, last, 0))
            found[batch.partition] = PartitionOffsets(first, last, count + batch.count)
        return TableMetadata(self.topic, self.record_count, found)
