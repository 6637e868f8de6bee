"""Blocking consumer, which runs the asyncio one on an event loop in its own thread.

Records that are already buffered are returned without involving that thread. Everything else waits
for it, including a poll that finds the buffer empty. Listeners run in the thread that polls."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.blocking import Deferred, LoopThread
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
        """Configuration of the consumer, with all defaults."""
        return self._async.config

    # ---------------------------------------------------------------------------------- closing

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.close(is_failed=error is not None)

    def close(self, timeout_s: float | None = DEFAULT_CLOSE_S, *, is_failed: bool = False) -> None:
        """Commit the positions if `enable.auto.commit` is on, leave the group and disconnect.

        The listener's `on_revoked` is called before the consumer leaves.

        Args:
            timeout_s: Seconds to wait for the commit.
            is_failed: Do not commit the records that were returned last. The `with` statement sets
                this when its block raises.
        """
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
        """Join the consumer group and read its share of topics.

        Partitions are assigned while the consumer polls. A new subscription replaces the previous
        one.

        Args:
            topics: One name or several. A compiled pattern, or a text that begins with `^`, stands
                for all matching topics, later ones included. The broker resolves a
                `SubscriptionPattern`.
            listener: Listener for rebalances; see `RebalanceListener`.

        Raises:
            InvalidConfig: The consumer has no `group_id`.

        Example:
            consumer.subscribe(["orders", "payments"])
            consumer.subscribe("^orders-.*")
        """
        self._call(lambda: self._async.subscribe(topics, listener=listener))

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, without joining a group.

        Args:
            partitions: Partitions to read; they replace the previous assignment.

        Example:
            consumer.assign([TopicPartition("orders", 0)])
        """
        self._call(lambda: self._async.assign(partitions))

    def unsubscribe(self) -> None:
        """Give up all partitions and leave the group.

        The positions are committed first if `enable.auto.commit` is on, and the listener's
        `on_revoked` is called.
        """
        change = self._run(self._async._begin_unsubscribe())
        if change is not None:
            self._async._rebalances.callback(change)()
        self._run(self._async._finish_unsubscribe())

    def subscription(self) -> set[str]:
        """Return the names of the subscribed topics."""
        return self._async.subscription()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are assigned to this consumer."""
        return self._async.assignment()

    # ---------------------------------------------------------------------------------- polling

    def poll(
        self, timeout_s: float | None = DEFAULT_POLL_S, max_records: int | None = None
    ) -> Records:
        """Return the next records as soon as there are any.

        The records of the previous poll count as consumed. Rebalances happen inside this call.

        Args:
            timeout_s: Seconds to wait for records. None waits without limit.
            max_records: Maximum number of records; `max.poll.records` by default.

        Returns:
            The records, or an empty list after the timeout.

        Raises:
            UnknownTopic: A subscribed topic does not exist.
            DeserializationFailed: A deserializer raised. Seek past the record to continue.
            NoOffsetForPartition: No offset is committed, and `auto.offset.reset` is `none`.
            ClientClosed: The consumer is closed.

        Example:
            for record in consumer.poll(timeout_s=5):
                print(record.topic, record.offset, record.value)
        """
        inner = self._async
        limit = inner._limit(max_records)
        records = Records(self._poll_with(timeout_s, lambda: inner._buffer.take(limit)) or [])
        inner._buffer.is_delivered = True  # must be the last step before the return
        return records

    def _poll_with(self, timeout_s: float | None, take: Callable[[], T]) -> T | None:
        """Return the result of `take`, called in this thread, or None after the timeout."""
        inner = self._async
        taken = inner.take_now(take)
        if taken:
            return taken
        deadline = inner._deadline(timeout_s)
        while not taken:
            self._check_open()
            outcome = self._thread.run(Deferred(lambda: inner._ready(deadline)))
            if isinstance(outcome, Change):
                self._run_listener(outcome)
            elif outcome:
                taken = take()
            else:
                return None
        return taken

    def _run_listener(self, change: Change) -> None:
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
        """Return fetched records as an Arrow table, as soon as there are any.

        Deserializers are not called: the columns `key` and `value` hold bytes. Needs the `arrow`
        extra.

        Args:
            timeout_s: Seconds to wait for records. None waits without limit.
            max_records: Maximum number of rows. None takes all fetched records up to `max_bytes`.
            max_bytes: Approximate size of the fetched data to take; `fetch.max.bytes` by default.
            columns: Columns to return, from topic, partition, offset, timestamp, timestamp_type,
                key, value and headers. None returns all.
            value: `"json"` to parse values; their fields become columns in place of `value`.
            schema: Arrow schema for the fields of JSON values. None infers it for each table.

        Returns:
            The table; it has no rows after the timeout.

        Raises:
            DeserializationFailed: A value is not valid JSON, or does not match the schema.
            ValueError: `max_records` or `max_bytes` is less than 1.
        """
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
        """Yield all records, without end, as Arrow record batches.

        A batch counts as consumed when the next one is requested. Needs the `arrow` extra.

        Args:
            columns: Columns to return; see `poll_table`.
            value: `"json"` to parse values; see `poll_table`.
            schema: Arrow schema for the fields of JSON values.
        """
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
        """Read each partition from its first offset up to, but excluding, its last, then stop."""

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
    def _unreachable_reason(self) -> str | None:
        """Why brokers cannot be reached now, or None if that is unknown."""
        return self._async._cluster.unreachable_reason

    def __iter__(self) -> Iterator[Record]:
        """Yield records without end."""
        inner = self._async
        progress, buffer = inner._progress, inner._buffer
        limit = inner.config.max_poll_records
        while True:
            records = self._poll_with(None, lambda: buffer.take(limit)) or []
            for record in buffer.iterate(records):
                progress.last = record
                yield record
                if inner.attention:
                    break

    # ------------------------------------------------------------------------------- committing

    def commit(
        self, offsets: Offsets | None = None, *, wait: bool = True, timeout_s: float | None = None
    ) -> None:
        """Commit offsets to the group.

        Args:
            offsets: Offset of the next record to read for each partition. None commits the
                positions: all records that were returned count as consumed.
            wait: Wait for the coordinator. If False, failures are only logged.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Raises:
            CommitFailed: The group has rebalanced and the partitions belong to another member.
            KafkaTimeout: The coordinator did not answer in time.

        Example:
            consumer.commit({TopicPartition("orders", 0): record.offset + 1})
        """
        self._run(self._async.commit(offsets, wait=wait, timeout_s=timeout_s))

    def commit_async(
        self, offsets: Offsets | None = None, callback: Callable[..., Any] | None = None
    ) -> None:
        """Commit offsets in the background.

        Args:
            offsets: Offset of the next record to read for each partition. None commits the
                positions.
            callback: Function of the offsets and the error, or None in its place, to call when the
                commit has ended. It runs in the consumer's own thread.
        """
        self._call(lambda: self._async.commit_async(offsets, callback))

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's identity in its group, for `Producer.send_offsets`."""
        return self._async.group_metadata()

    def committed(
        self, *partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets that the group has committed.

        Args:
            partitions: Partitions to look up; all assigned ones by default.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Returns:
            The committed offset of each partition, or None where there is none.

        Raises:
            KafkaTimeout: The coordinator did not answer in time.
        """
        return self._run(self._async.committed(*partitions, timeout_s=timeout_s))

    # -------------------------------------------------------------------------------- positions

    def position(self, tp: TopicPartition, *, timeout_s: float | None = None) -> int:
        """Return the offset of the next record that `poll` will return.

        Args:
            tp: An assigned partition.
            timeout_s: Seconds to wait for a position that is not known yet;
                `default.api.timeout.ms` by default.

        Raises:
            KafkaTimeout: The position was not known in time; the message has the cause.
        """
        return self._run(self._async.position(tp, timeout_s=timeout_s))

    def seek(self, tp: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Continue reading a partition from an offset.

        Args:
            tp: An assigned partition.
            offset: Offset of the next record to read.

        Raises:
            ValueError: The offset is negative.
        """
        self._call(lambda: self._async.seek(tp, offset))

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Continue reading from the log start offset.

        Args:
            partitions: Assigned partitions; all of them by default.
        """
        self._call(lambda: self._async.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Continue reading with the records that are written from now on.

        Args:
            partitions: Assigned partitions; all of them by default.
        """
        self._call(lambda: self._async.seek_to_end(*partitions))

    def seek_to_timestamp(self, timestamp: Timestamp, *partitions: Partitions) -> None:
        """Continue reading from the first record at or after a time.

        If there is no such record, reading continues at the end.

        Args:
            timestamp: Milliseconds since the epoch, or a datetime; local time if it has no zone.
            partitions: Assigned partitions; all of them by default.

        Raises:
            ValueError: The timestamp is negative.
        """
        self._call(lambda: self._async.seek_to_timestamp(timestamp, *partitions))

    def pause(self, *partitions: Partitions) -> None:
        """Return no records of these partitions until `resume`.

        The consumer stays a member of the group, so polling must go on.

        Args:
            partitions: Assigned partitions.
        """
        self._call(lambda: self._async.pause(*partitions))

    def resume(self, *partitions: Partitions) -> None:
        """Return records of paused partitions again.

        Args:
            partitions: Assigned partitions.
        """
        self._call(lambda: self._async.resume(*partitions))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return self._async.paused()

    def lag(self, tp: TopicPartition, *, timeout_s: float | None = None) -> int:
        """Return the number of offsets between the position and the end of a partition.

        The end is the high watermark, or the last stable offset with
        `isolation.level=read_committed`.

        Args:
            tp: An assigned partition.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Raises:
            KafkaTimeout: The position or the end was not known in time.
        """
        return self._run(self._async.lag(tp, timeout_s=timeout_s))

    def beginning_offsets(
        self, *partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the log start offset of partitions.

        Args:
            partitions: Partitions to look up; all assigned ones by default.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Raises:
            KafkaTimeout: The brokers did not answer in time.
        """
        return self._run(self._async.beginning_offsets(*partitions, timeout_s=timeout_s))

    def end_offsets(
        self, *partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the high watermark of partitions: the offset after the last readable record.

        With `isolation.level=read_committed` it is the last stable offset.

        Args:
            partitions: Partitions to look up; all assigned ones by default.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Raises:
            KafkaTimeout: The brokers did not answer in time.
        """
        return self._run(self._async.end_offsets(*partitions, timeout_s=timeout_s))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, Timestamp], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time in each partition.

        Args:
            timestamps: Time for each partition: milliseconds since the epoch, or a datetime.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Returns:
            Offset and timestamp of the record, or None where there is no such record.

        Raises:
            KafkaTimeout: The brokers did not answer in time.
        """
        return self._run(self._async.offsets_for_times(timestamps, timeout_s=timeout_s))

    def partitions_for(self, topic: str, *, timeout_s: float | None = None) -> list[TopicPartition]:
        """Return the partitions of a topic, ordered by number.

        Args:
            topic: Name of the topic.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Raises:
            UnknownTopic: The topic does not exist.
        """
        return self._run(self._async.partitions_for(topic, timeout_s=timeout_s))

    # -------------------------------------------------------------------------------- internals

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            coroutine.close()
        self._check_open()
        return self._thread.run(coroutine)

    def _call(self, function: Callable[[], T]) -> T:
        """Run a plain function on the event loop, which owns the state that it touches."""

        async def called() -> T:
            return function()

        self._check_open()
        return self._thread.run(called())

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed")
