"""Blocking consumer.

Records that are already buffered are returned without involving that thread. Everything else waits
for it, including a poll that finds the buffer empty. Listeners run in the thread that polls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ottla.base.deprecation import warn_deprecated
from ottla.base.types import TopicPartition
from ottla.client.blocking import (
    BlockingClient,
    LoopThread,
    blocking,
    documented_by,
    on_loop,
)
from ottla.client.config import Bootstrap, Profile
from ottla.client.consumer.async_consumer import (
    CLOSE_INSTEAD,
    COMMIT_INSTEAD,
    DEFAULT_POLL_S,
    AsyncConsumer,
    Offsets,
)
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.engine import DEFAULT_CLOSE_S
from ottla.client.consumer.rebalance import Change, RebalanceListener
from ottla.client.consumer.record import GroupMetadata, Record, Records
from ottla.client.consumer.subscription import Topics
from ottla.client.properties import ConsumerProperties
from ottla.client.serializers import Deserializer

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.consumer.table import TableReader

T = TypeVar("T")


class Consumer(BlockingClient[AsyncConsumer]):
    """Client that reads topics, alone or as a member of a consumer group.

        with Consumer("localhost:9092", group_id="billing", topics="orders") as consumer:
            for record in consumer:
                ...

    A record counts as consumed when the next one is requested. If the `with` block raises,
    Ctrl-C included, the offset of the current record is not committed. A consumer must not be used
    by several threads at once.

    Args:
        bootstrap: Broker addresses, such as `"host1:9092,host2:9092"`, a list of them, or a
            mapping of properties.
        profile: Properties to use unless they are given here: the path of a properties file, or
            a mapping.
        topics: Topics to subscribe to; see `subscribe`.
        listener: Listener for rebalances; see `RebalanceListener`.
        key_deserializer: Function from bytes to a key, or `"json"`, `"string"` or `"bytes"`.
            None, the default, returns bytes.
        value_deserializer: The same for values.
        properties: Kafka's consumer properties, with underscores for dots:
            `auto_offset_reset="earliest"`.

    Raises:
        InvalidConfig: A property does not exist or has an invalid value, or `topics` are given
            without a `group_id`.
        BrokersUnreachable: No broker answered within `default.api.timeout.ms`.
    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        profile: Profile | None = None,
        topics: Topics | None = None,
        listener: RebalanceListener | None = None,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        **properties: Unpack[ConsumerProperties],
    ) -> None:
        client = AsyncConsumer(
            bootstrap,
            profile=profile,
            topics=topics,
            listener=listener,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            **properties,
        )
        self._engine = engine = client.engine
        self._is_closing = False
        thread = LoopThread("ottla-consumer", "consumer")
        super().__init__(client, thread)
        engine.buffer.on_room = lambda: thread.call_soon(engine.fetcher.pump)

    @property
    def config(self) -> ConsumerConfig:
        """Configuration of the consumer, with all defaults."""
        return self._async.config

    # ---------------------------------------------------------------------------------- closing

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(is_failed=error is not None)

    @documented_by(AsyncConsumer.close)
    def close(
        self, timeout_s: float | None = DEFAULT_CLOSE_S, *, is_failed: bool | None = None
    ) -> None:
        if is_failed is not None:
            warn_deprecated("close(is_failed=…)", CLOSE_INSTEAD)
        self._close(timeout_s, is_failed=bool(is_failed))

    def _close(self, timeout_s: float | None = DEFAULT_CLOSE_S, *, is_failed: bool) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        engine = self._engine
        try:
            change = self._thread.run(engine.begin_close, timeout_s, is_failed=is_failed)
            try:
                if change is not None:
                    engine.rebalances.callback(change)()
            finally:
                self._thread.run(engine.finish_close)
        finally:
            self._thread.close()

    # ------------------------------------------------------------------------------ subscribing

    subscribe = on_loop(AsyncConsumer.subscribe)
    assign = on_loop(AsyncConsumer.assign)

    @documented_by(AsyncConsumer.unsubscribe)
    def unsubscribe(self) -> None:
        engine = self._engine
        change = self._thread.run(engine.begin_unsubscribe)
        if change is not None:
            engine.rebalances.callback(change)()
        self._thread.run(engine.finish_unsubscribe)

    @documented_by(AsyncConsumer.subscription)
    def subscription(self) -> set[str]:
        return self._async.subscription()

    @documented_by(AsyncConsumer.assignment)
    def assignment(self) -> set[TopicPartition]:
        return self._async.assignment()

    # ---------------------------------------------------------------------------------- polling

    @documented_by(AsyncConsumer.poll)
    def poll(
        self, timeout_s: float | None = DEFAULT_POLL_S, max_records: int | None = None
    ) -> Records:
        buffer, limit = self._engine.buffer, self._engine.limit(max_records)
        records = Records(self._poll_with(timeout_s, lambda: buffer.take(limit)) or [])
        buffer.is_delivered = True  # must be the last step before the return
        return records

    def _poll_with(self, timeout_s: float | None, take: Callable[[], T]) -> T | None:
        """Return the result of `take`, called in this thread, or None after the timeout."""
        engine = self._engine
        taken = engine.take_now(take)
        if taken:
            return taken
        deadline = engine.deadline(timeout_s)
        while not taken:
            outcome = self._thread.run(engine.ready, deadline)
            if isinstance(outcome, Change):
                self._run_listener(outcome)
            elif outcome:
                taken = take()
            else:
                return None
        return taken

    def _run_listener(self, change: Change) -> None:
        """Run the listener in this thread."""
        rebalances = self._engine.rebalances
        try:
            rebalances.callback(change)()
        finally:
            self._thread.call(rebalances.finish, change)

    @documented_by(AsyncConsumer.poll_table)
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
        from ottla.client.consumer.table import TableReader

        reader = TableReader(columns, value, schema)
        return reader.table(self._poll_batches(timeout_s, reader, max_records, max_bytes))

    @documented_by(AsyncConsumer.iter_batches)
    def iter_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        value: str | None = None,
        schema: pyarrow.Schema | None = None,
    ) -> Iterator[pyarrow.RecordBatch]:
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
        take = self._engine.taking_batches(reader, max_records, max_bytes)
        batches = self._poll_with(timeout_s, take) or []
        self._engine.buffer.is_delivered = True
        return batches

    def _assign_range(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Read each partition from its first offset up to, but excluding, its last, then stop."""

        def assign() -> None:
            self._async.assign(ranges)
            for tp, (first, last) in ranges.items():
                self._engine.subscription.state(tp).stop_at = last
                self._async.seek(tp, first)

        self._thread.call(assign)

    def _position_now(self, tp: TopicPartition) -> int:
        in_hand = self._engine.buffer.in_hand_position(tp)
        if in_hand is not None:
            return in_hand
        return self._engine.subscription.state(tp).position or 0

    @property
    def _unreachable_reason(self) -> str | None:
        """Why brokers cannot be reached now, or None if that is unknown."""
        return self._engine.cluster.unreachable_reason

    def __iter__(self) -> Iterator[Record]:
        """Yield records without end."""
        engine = self._engine
        progress, buffer = engine.progress, engine.buffer
        limit = engine.config.max_poll_records
        while True:
            records = self._poll_with(None, lambda: buffer.take(limit)) or []
            for record in buffer.iterate(records):
                progress.last = record
                yield record
                if engine.attention:
                    break

    # ------------------------------------------------------------------------------- committing

    @documented_by(AsyncConsumer.commit)
    def commit(
        self,
        offsets: Offsets | None = None,
        *,
        wait: bool | None = None,
        timeout_s: float | None = None,
    ) -> None:
        if wait is not None:
            warn_deprecated("commit(wait=…)", COMMIT_INSTEAD)
            if not wait:
                self.commit_async(offsets)
                return
        self._thread.run(self._async.commit, offsets, timeout_s=timeout_s)

    commit_async = on_loop(AsyncConsumer.commit_async)
    committed = blocking(AsyncConsumer.committed)

    @documented_by(AsyncConsumer.group_metadata)
    def group_metadata(self) -> GroupMetadata:
        return self._async.group_metadata()

    # -------------------------------------------------------------------------------- positions

    position = blocking(AsyncConsumer.position)
    seek = on_loop(AsyncConsumer.seek)
    seek_to_beginning = on_loop(AsyncConsumer.seek_to_beginning)
    seek_to_end = on_loop(AsyncConsumer.seek_to_end)
    seek_to_timestamp = on_loop(AsyncConsumer.seek_to_timestamp)
    pause = on_loop(AsyncConsumer.pause)
    resume = on_loop(AsyncConsumer.resume)

    @documented_by(AsyncConsumer.paused)
    def paused(self) -> set[TopicPartition]:
        return self._async.paused()

    lag = blocking(AsyncConsumer.lag)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    partitions_for = blocking(AsyncConsumer.partitions_for)
