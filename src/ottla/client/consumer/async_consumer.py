"""Asyncio consumer; `consumer.Consumer` is its blocking twin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from ottla.base.deprecation import warn_deprecated
from ottla.base.types import TopicPartition
from ottla.client.arguments import flatten
from ottla.client.config import Bootstrap, Profile
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.engine import DEFAULT_CLOSE_S, CommitCallback, ConsumerEngine
from ottla.client.consumer.rebalance import RebalanceListener
from ottla.client.consumer.record import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Record,
    Records,
)
from ottla.client.consumer.subscription import EARLIEST, LATEST, Topics
from ottla.client.properties import ConsumerProperties
from ottla.client.serializers import Deserializer, deserializer

if TYPE_CHECKING:
    import pyarrow

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
Timestamp = int | datetime
"""Milliseconds since the epoch, or a datetime; without a time zone, it is local time."""

Partitions = TopicPartition | tuple[str, int] | Iterable[TopicPartition | tuple[str, int]]
"""One partition, or an iterable of partitions."""

DEFAULT_POLL_S = 1.0

COMMIT_INSTEAD = "Call commit_async() to commit without waiting."
CLOSE_INSTEAD = "Use the consumer as a context manager."


class AsyncConsumer:
    """Client that reads topics, alone or as a member of a consumer group.

        async with AsyncConsumer("localhost:9092", group_id="billing") as consumer:
            consumer.subscribe("orders")
            async for record in consumer:
                ...

    A record counts as consumed when the next one is requested. If the `with` block raises,
    Ctrl-C included, the offset of the current record is not committed. A consumer must not be used
    by several tasks at once.

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
        self.engine = ConsumerEngine(
            ConsumerConfig.of(bootstrap, profile, properties),
            topics,
            listener,
            key_deserializer=deserializer(key_deserializer),
            value_deserializer=deserializer(value_deserializer),
        )

    @property
    def config(self) -> ConsumerConfig:
        """Configuration of the consumer, with all defaults."""
        return self.engine.config

    # ------------------------------------------------------------------------- start and close

    async def start(self) -> Self:
        """Reach the cluster, and subscribe to the topics passed to the constructor.

        Raises:
            BrokersUnreachable: No broker answered within `default.api.timeout.ms`.
        """
        await self.engine.start()
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.engine.close(is_failed=error is not None)

    async def close(
        self, timeout_s: float | None = DEFAULT_CLOSE_S, *, is_failed: bool | None = None
    ) -> None:
        """Commit the positions if `enable.auto.commit` is on, leave the group and disconnect.

        The listener's `on_revoked` is called before the consumer leaves.

        Args:
            timeout_s: Seconds to wait for the commit.
            is_failed: Deprecated. Use the consumer as a context manager: if the block raises, the
                records that were returned last are not committed.
        """
        if is_failed is not None:
            warn_deprecated("close(is_failed=…)", CLOSE_INSTEAD)
        await self.engine.close(timeout_s, is_failed=bool(is_failed))

    # ----------------------------------------------------------------------------- subscribing

    def subscribe(self, topics: Topics, *, listener: RebalanceListener | None = None) -> None:
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
        self.engine.subscribe(topics, listener)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, without joining a group.

        Args:
            partitions: Partitions to read; they replace the previous assignment.

        Example:
            consumer.assign([TopicPartition("orders", 0)])
        """
        self.engine.assign(TopicPartition(*each) for each in partitions)

    async def unsubscribe(self) -> None:
        """Give up all partitions and leave the group.

        The positions are committed first if `enable.auto.commit` is on, and the listener's
        `on_revoked` is called.
        """
        await self.engine.unsubscribe()

    def subscription(self) -> set[str]:
        """Return the names of the subscribed topics."""
        return set(self.engine.subscription.topics)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are assigned to this consumer."""
        return self.engine.subscription.assignment

    # --------------------------------------------------------------------------------- polling

    async def poll(
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
            for record in await consumer.poll(timeout_s=5):
                print(record.topic, record.offset, record.value)
        """
        records = await self._poll(timeout_s, max_records)
        self.engine.buffer.is_delivered = True
        return Records(records)

    async def _poll(self, timeout_s: float | None, max_records: int | None) -> list[Record]:
        limit = self.engine.limit(max_records)
        return await self.engine.poll_with(timeout_s, lambda: self.engine.buffer.take(limit)) or []

    async def poll_table(
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
        take = self.engine.taking_batches(reader, max_records, max_bytes)
        table = reader.table(await self.engine.poll_with(timeout_s, take) or [])
        self.engine.buffer.is_delivered = True
        return table

    async def iter_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        value: str | None = None,
        schema: pyarrow.Schema | None = None,
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """Yield all records, without end, as Arrow record batches.

        A batch counts as consumed when the next one is requested. Needs the `arrow` extra.

        Args:
            columns: Columns to return; see `poll_table`.
            value: `"json"` to parse values; see `poll_table`.
            schema: Arrow schema for the fields of JSON values.
        """
        from ottla.client.consumer.table import TableReader

        take = self.engine.taking_batches(TableReader(columns, value, schema), None, 1)
        while True:
            batches = await self.engine.poll_with(None, take) or []
            self.engine.buffer.is_delivered = True
            for batch in batches:
                yield batch

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Record]:
        progress, buffer = self.engine.progress, self.engine.buffer
        while True:
            for record in buffer.iterate(await self._poll(None, None)):
                progress.last = record
                yield record
                if self.engine.attention:
                    break

    async def commit(
        self,
        offsets: Offsets | None = None,
        *,
        wait: bool | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets to the group and wait for the coordinator.

        `commit_async` does not wait.

        Args:
            offsets: Offset of the next record to read for each partition. None commits the
                positions: all records that were returned count as consumed.
            wait: Deprecated. Call `commit_async` instead of passing False.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Raises:
            CommitFailed: The group has rebalanced and the partitions belong to another member.
            KafkaTimeout: The coordinator did not answer in time.

        Example:
            await consumer.commit({TopicPartition("orders", 0): record.offset + 1})
        """
        if wait is not None:
            warn_deprecated("commit(wait=…)", COMMIT_INSTEAD)
            if not wait:
                self.commit_async(offsets)
                return
        await self.engine.commit(None if offsets is None else _offsets(offsets), timeout_s)

    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit offsets in the background.

        Without a callback, a failure is only logged.

        Args:
            offsets: Offset of the next record to read for each partition. None commits the
                positions.
            callback: Function of the offsets and the error, or None in its place, to call when the
                commit has ended. It runs in the thread of the event loop.
        """
        wanted = None if offsets is None else _offsets(offsets)
        self.engine.commit_in_background(wanted, callback)

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's identity in its group, for `Producer.send_offsets`."""
        return self.engine.group_metadata()

    async def position(self, tp: TopicPartition, *, timeout_s: float | None = None) -> int:
        """Return the offset of the next record that `poll` will return.

        Args:
            tp: An assigned partition.
            timeout_s: Seconds to wait for a position that is not known yet;
                `default.api.timeout.ms` by default.

        Raises:
            KafkaTimeout: The position was not known in time; the message has the cause.
        """
        return await self.engine.position(TopicPartition(*tp), timeout_s)

    def seek(self, tp: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Continue reading a partition from an offset.

        Args:
            tp: An assigned partition.
            offset: Offset of the next record to read.

        Raises:
            ValueError: The offset is negative.
        """
        if isinstance(offset, OffsetAndMetadata):
            number, epoch = offset.offset, offset.leader_epoch
        else:
            number, epoch = offset, -1
        if number < 0:
            raise ValueError(f"offset must be at least 0, not {number}.")
        state = self.engine.subscription.state(TopicPartition(*tp))
        self.engine.buffer.mark_consumed()
        state.seek(number, epoch)
        self._on_seek([state.tp])

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Continue reading from the log start offset.

        Args:
            partitions: Assigned partitions; all of them by default.
        """
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Continue reading with the records that are written from now on.

        Args:
            partitions: Assigned partitions; all of them by default.
        """
        self._seek_to(partitions, LATEST)

    def seek_to_timestamp(self, timestamp: Timestamp, *partitions: Partitions) -> None:
        """Continue reading from the first record at or after a time.

        If there is no such record, reading continues at the end.

        Args:
            timestamp: Milliseconds since the epoch, or a datetime; local time if it has no zone.
            partitions: Assigned partitions; all of them by default.

        Raises:
            ValueError: The timestamp is negative.
        """
        self._seek_to(partitions, _milliseconds(timestamp))

    def _seek_to(self, partitions: Sequence[Partitions], timestamp: int) -> None:
        wanted = _flat(partitions) or sorted(self.assignment())
        states = [self.engine.subscription.state(tp) for tp in wanted]
        self.engine.buffer.mark_consumed()
        for state in states:
            state.want_reset(timestamp)
        self._on_seek([state.tp for state in states])

    def _on_seek(self, partitions: Iterable[TopicPartition]) -> None:
        self.engine.buffer.drop(partitions)
        self.engine.wake_poll()

    def pause(self, *partitions: Partitions) -> None:
        """Return no records of these partitions until `resume`.

        The consumer stays a member of the group, so polling must go on.

        Args:
            partitions: Assigned partitions.
        """
        self._set_paused(partitions, True)

    def resume(self, *partitions: Partitions) -> None:
        """Return records of paused partitions again.

        Args:
            partitions: Assigned partitions.
        """
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Sequence[Partitions], is_paused: bool) -> None:
        states = [self.engine.subscription.state(tp) for tp in _flat(partitions)]
        for state in states:
            state.is_paused = is_paused
        self.engine.wake_poll()

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return self.engine.subscription.paused

    async def committed(
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
        self.engine.check_open()
        wanted = _flat(partitions) or sorted(self.assignment())
        found = await self.engine.need_group().fetch(
            wanted, timeout_ms=self.engine.timeout_ms(timeout_s)
        )
        return {tp: found.get(tp) for tp in wanted}

    async def lag(self, tp: TopicPartition, *, timeout_s: float | None = None) -> int:
        """Return the number of offsets between the position and the end of a partition.

        The end is the high watermark, or the last stable offset with
        `isolation.level=read_committed`.

        Args:
            tp: An assigned partition.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Raises:
            KafkaTimeout: The position or the end was not known in time.
        """
        position = await self.position(tp, timeout_s=timeout_s)
        state = self.engine.subscription.state(TopicPartition(*tp))
        end = state.last_stable_offset if self.config.isolation else state.high_watermark
        if end < position:
            end = (await self.end_offsets(tp, timeout_s=timeout_s))[TopicPartition(*tp)]
        return max(end - position, 0)

    async def beginning_offsets(
        self, *partitions: Partitions, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the log start offset of partitions.

        Args:
            partitions: Partitions to look up; all assigned ones by default.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Raises:
            KafkaTimeout: The brokers did not answer in time.
        """
        return await self._ends(partitions, EARLIEST, timeout_s)

    async def end_offsets(
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
        return await self._ends(partitions, LATEST, timeout_s)

    async def _ends(
        self, partitions: Sequence[Partitions], which: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        wanted = _flat(partitions) or sorted(self.assignment())
        found = await self._look_up(dict.fromkeys(wanted, which), timeout_s)
        return {tp: found[tp].offset for tp in wanted}

    async def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, Timestamp],
        *,
        timeout_s: float | None = None,
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
        wanted = {TopicPartition(*tp): _milliseconds(at) for tp, at in timestamps.items()}
        found = await self._look_up(wanted, timeout_s)
        return {tp: found[tp] if found[tp].offset >= 0 else None for tp in wanted}

    async def _look_up(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self.engine.check_open()
        return await self.engine.lookup.list(
            timestamps, timeout_ms=self.engine.timeout_ms(timeout_s)
        )

    async def partitions_for(
        self, topic: str, *, timeout_s: float | None = None
    ) -> list[TopicPartition]:
        """Return the partitions of a topic, ordered by number.

        Args:
            topic: Name of the topic.
            timeout_s: Seconds to wait; `default.api.timeout.ms` by default.

        Raises:
            UnknownTopic: The topic does not exist.
        """
        self.engine.check_open()
        known = await self.engine.cluster.topic(topic, timeout_ms=self.engine.timeout_ms(timeout_s))
        return [TopicPartition(topic, number) for number in range(known.partition_count)]


def _flat(partitions: Sequence[Partitions]) -> list[TopicPartition]:
    kind: type[Any] = tuple  # covers TopicPartition and plain (topic, partition) pairs
    return [TopicPartition(*tp) for tp in flatten(partitions, kind, "partitions")]


def _offsets(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    found = {
        TopicPartition(*tp): value if isinstance(value, OffsetAndMetadata)
        else OffsetAndMetadata(value)
        for tp, value in offsets.items()
    }  # fmt: skip
    for tp, value in found.items():
        if value.offset < 0:
            raise ValueError(f"The offset of {tp} must be at least 0, not {value.offset}.")
    return found


def _milliseconds(timestamp: Timestamp) -> int:
    if isinstance(timestamp, datetime):
        since = timestamp.astimezone(UTC) - datetime.fromtimestamp(0, UTC)
        return -(-since // timedelta(milliseconds=1))  # rounded up to whole milliseconds
    if timestamp < 0:
        raise ValueError(f"timestamp must be at least 0, not {timestamp}.")
    return int(timestamp)
