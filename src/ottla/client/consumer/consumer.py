"""The blocking consumer: the asyncio one on an event loop in a thread of its own.

Records that have arrived are handed out without asking that thread. Everything else, and polling
when nothing has arrived, waits for it. Listeners run in the thread that polls."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.blocking import LoopThread
from ottla.client.config import Bootstrap, Profile
from ottla.client.consumer.async_consumer import (
    DEFAULT_POLL_S,
    AsyncConsumer,
    Offsets,
    Partitions,
    Timestamp,
)
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.engine import DEFAULT_CLOSE_S
from ottla.client.consumer.rebalance import Change
from ottla.client.consumer.record import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Record,
    Records,
)
from ottla.client.consumer.subscription import Topics
from ottla.client.errors import ClientClosed
from ottla.client.serializers import Deserializer

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.consumer.table import TableReader

T = TypeVar("T")


class Consumer:
    """Reads topics, alone or as a member of a group.

        with Consumer("localhost:9092", group_id="billing", topics="orders") as consumer:
            for record in consumer:
                ...

    A record counts as consumed when the next one is asked for. If the `with` ends with an
    exception, Ctrl-C included, the record in hand is not committed. Not to be used by several
    threads at once."""

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        profile: Profile | None = None,
        topics: Topics | None = None,
        listener: Any = None,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        **properties: Any,
    ) -> None:
        self._async = inner = AsyncConsumer(
            bootstrap,
            profile=profile,
            topics=topics,
            listener=listener,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **properties,
        )
        self._is_closing = self._is_closed = False
        self._thread = thread = LoopThread("ottla-consumer")
        try:
            thread.run(inner.start())
        except BaseException:
            self._is_closed = True
            thread.close()
            raise
        pump = inner._fetcher.pump
        inner._buffer.on_room = lambda: thread.call_soon(pump)

    @property
    def config(self) -> ConsumerConfig:
        return self._async.config

    # ---------------------------------------------------------------------------------- closing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.close(is_failed=error is not None)

    def close(self, timeout_s: float | None = DEFAULT_CLOSE_S, *, is_failed: bool = False) -> None:
        """Commits what was handed out (auto-commit), tells the listener, leaves the group.
        `is_failed`: what was handed out last was not dealt with, and is not committed."""
        if self._is_closing:
            return
        self._is_closing = True
        inner = self._async
        try:
            change = self._thread.run(inner._begin_close(timeout_s, is_failed=is_failed))
            try:
                if change is not None:
                    inner._rebalances.callback(change)()
            finally:
                self._is_closed = True
                self._thread.run(inner._finish_close())
        finally:
            self._is_closed = True
            self._thread.close()

    # ------------------------------------------------------------------------------ subscribing

    def subscribe(self, topics: Topics, *, listener: Any = None) -> None:
        """Share these topics with the other members of the group. A compiled pattern, or a text
        that begins with ^, stands for all topics that match, also those that come later; a
        SubscriptionPattern leaves matching to the broker. The partitions arrive while polling.
        `listener`: see RebalanceListener."""
        self._call(lambda: self._async.subscribe(topics, listener=listener))

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, whatever a group does."""
        self._call(lambda: self._async.assign(partitions))

    def unsubscribe(self) -> None:
        """Give everything back, and leave the group."""
        change = self._run(self._async._begin_unsubscribe())
        if change is not None:
            self._async._rebalances.callback(change)()
        self._run(self._async._finish_unsubscribe())

    def subscription(self) -> set[str]:
        return self._async.subscription()

    def assignment(self) -> set[TopicPartition]:
        return self._async.assignment()

    # ---------------------------------------------------------------------------------- polling

    def poll(
        self, timeout_s: float | None = DEFAULT_POLL_S, max_records: int | None = None
    ) -> Records:
        """The next records, as soon as there are any; none after the timeout (None: wait for
        ever). Those of the last poll count as consumed."""
        inner = self._async
        limit = inner._limit(max_records)
        records = Records(self._poll_with(timeout_s, lambda: inner._buffer.take(limit)) or [])
        inner._buffer.is_delivered = True  # nothing may come between this and the return
        return records

    def _poll_with(self, timeout_s: float | None, take: Callable[[], T]) -> T | None:
        """What `take` takes from the buffer, in this thread; None at the timeout."""
        inner = self._async
        taken = inner.take_now(take)
        if taken:
            return taken
        deadline = inner._deadline(timeout_s)
        while not taken:
            self._check_open()
            outcome = self._thread.run(inner._ready(deadline))
            if isinstance(outcome, Change):
                self._tell(outcome)
            elif outcome:
                taken = take()
            else:
                return None
        return taken

    def _tell(self, change: Change) -> None:
        """Run the listener in this thread."""
        rebalances = self._async._rebalances
        try:
            rebalances.callback(change)()
        finally:
            self._call(lambda: rebalances.finish(change))

    def poll_table(
        self,
        timeout_s: float | None = DEFAULT_POLL_S,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        columns: Sequence[str] | None = None,
        value: str | None = None,
        schema: pyarrow.Schema | None = None,
    ) -> pyarrow.Table:
        """What has been fetched, as an Arrow table, as soon as there is anything; a table without
        rows after the timeout. At most `max_records`, and about `max_bytes` of what was fetched
        (`fetch.max.bytes`). See `consumer.table` for the columns, and for values that are JSON.
        Key and value are bytes: deserialisers are not called."""
        from ottla.client.consumer.table import TableReader

        reader = TableReader(columns, value, schema)
        take = self._async._taking_batches(reader, max_records, max_bytes)
        table = reader.table(self._poll_with(timeout_s, take) or [])
        self._async._buffer.is_delivered = True
        return table

    def iter_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        value: str | None = None,
        schema: pyarrow.Schema | None = None,
    ) -> Iterator[pyarrow.RecordBatch]:
        """All records, for ever, as Arrow record batches. What was yielded counts as consumed when
        the next is asked for."""
        from ottla.client.consumer.table import TableReader

        reader = TableReader(columns, value, schema)
        while True:
            yield from self._poll_batches(None, reader, None, 1)

    def _poll_batches(
        self,
        timeout_s: float | None,
        reader: TableReader,
        max_records: int | None,
        max_bytes: int | None,
    ) -> list[Any]:
        take = self._async._taking_batches(reader, max_records, max_bytes)
        batches = self._poll_with(timeout_s, take) or []
        self._async._buffer.is_delivered = True
        return batches

    def _assign_range(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Read each partition from an offset up to another, and then no more of it."""

        def assign() -> None:
            inner = self._async
            inner.assign(ranges)
            for tp, (first, last) in ranges.items():
                inner._subscription.state(tp).stop_at = last
                inner.seek(tp, first)

        self._call(assign)

    def _position_now(self, tp: TopicPartition) -> int:
        in_hand = self._async._buffer.in_hand_position(tp)
        if in_hand is not None:
            return in_hand
        return self._async._subscription.state(tp).position or 0

    @property
    def _trouble(self) -> str | None:
        """Why brokers cannot be reached now, if that is known."""
        return self._async._cluster.trouble

    def __iter__(self) -> Iterator[Record]:
        """All records, for ever."""
        inner = self._async
        progress, buffer = inner._progress, inner._buffer
        limit = inner.config.max_poll_records
        while True:
            records = self._poll_with(None, lambda: buffer.take(limit)) or []
            for record in buffer.hand_out_singly(records):
                progress.last = record
                yield record
                if inner.attention:
                    break

    # ------------------------------------------------------------------------------- committing

    def commit(
        self, offsets: Offsets | None = None, *, wait: bool = True, timeout_s: float | None = None
    ) -> None:
        """Commit these offsets, or the positions: all that was handed out counts as consumed.
        Raises CommitFailed if the group has moved on. Not waiting, a failure is only logged."""
        self._run(self._async.commit(offsets, wait=wait, timeout_s=timeout_s))

    def commit_async(
        self, offsets: Offsets | None = None, callback: Callable[..., Any] | None = None
    ) -> None:
        """Commit in the background; `callback(offsets, error)` is told how it went, in the
        consumer's own thread."""
        self._call(lambda: self._async.commit_async(offsets, callback))

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group: for a transaction that commits its offsets."""
        return self._async.group_metadata()

    def committed(
        self, *partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these, or for all that are assigned; None: nothing."""
        return self._run(self._async.committed(*partitions, timeout_s=timeout_s))

    # -------------------------------------------------------------------------------- positions

    def position(self, tp: TopicPartition, *, timeout_s: float | None = None) -> int:
        """The offset of the next record that will be handed out."""
        return self._run(self._async.position(tp, timeout_s=timeout_s))

    def seek(self, tp: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Go on from this offset."""
        self._call(lambda: self._async.seek(tp, offset))

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Of these, or of all that are assigned."""
        self._call(lambda: self._async.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: Partitions) -> None:
        self._call(lambda: self._async.seek_to_end(*partitions))

    def seek_to_timestamp(self, timestamp: Timestamp, *partitions: Partitions) -> None:
        """To the first record at or after this time; where there is none, to the end."""
        self._call(lambda: self._async.seek_to_timestamp(timestamp, *partitions))

    def pause(self, *partitions: Partitions) -> None:
        """Hand out nothing of these until they are resumed."""
        self._call(lambda: self._async.pause(*partitions))

    def resume(self, *partitions: Partitions) -> None:
        self._call(lambda: self._async.resume(*partitions))

    def paused(self) -> set[TopicPartition]:
        return self._async.paused()

    def lag(self, tp: TopicPartition, *, timeout_s: float | None = None) -> int:
        """How many offsets lie between the position and the end of what may be read."""
        return self._run(self._async.lag(tp, timeout_s=timeout_s))

    def beginning_offsets(
        self, *partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._run(self._async.beginning_offsets(*partitions, timeout_s=timeout_s))

    def end_offsets(
        self, *partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Where the next records will be written; with read_committed, where the first open
        transaction begins."""
        return self._run(self._async.end_offsets(*partitions, timeout_s=timeout_s))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, Timestamp], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time; None where there is none."""
        return self._run(self._async.offsets_for_times(timestamps, timeout_s=timeout_s))

    def partitions_for(self, topic: str, *, timeout_s: float | None = None) -> list[TopicPartition]:
        """Raises UnknownTopic."""
        return self._run(self._async.partitions_for(topic, timeout_s=timeout_s))

    # ---------------------------------------------------------------------------------- insides

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            coroutine.close()
        self._check_open()
        return self._thread.run(coroutine)

    def _call(self, function: Callable[[], T]) -> T:
        """Run a plain function on the loop, which is where its state belongs."""

        async def called() -> T:
            return function()

        self._check_open()
        return self._thread.run(called())

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed")
