"""The consumer for asyncio, which does all the work; `consumer.Consumer` drives it."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.cluster import Cluster, CoordinatorType, Purpose
from ottla.client.config import Profile
from ottla.client.consumer.buffer import RecordBuffer
from ottla.client.consumer.classic import ClassicMember
from ottla.client.consumer.commits import GroupOffsets
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.membership import PollProgress
from ottla.client.consumer.modern import ModernMember
from ottla.client.consumer.offsets import OffsetLookup
from ottla.client.consumer.positions import Positions
from ottla.client.consumer.priorities import Priorities
from ottla.client.consumer.rebalance import Change, Rebalances
from ottla.client.consumer.record import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Record,
    SubscriptionPattern,
)
from ottla.client.consumer.subscription import EARLIEST, LATEST, Subscription
from ottla.client.errors import (
    ClientClosed,
    ClientError,
    CommitFailed,
    InvalidConfig,
    KafkaError,
    KafkaTimeout,
    UnknownTopic,
    UnsupportedVersion,
)
from ottla.client.metadata import ClusterMetadata
from ottla.client.serializers import Deserializer, deserializer
from ottla.net.connection import Connection
from ottla.wire.api import Api

if TYPE_CHECKING:
    import pyarrow

    from ottla.client.consumer.table import TableReader

logger = logging.getLogger(__name__)

T = TypeVar("T")
Topics = str | Iterable[str] | re.Pattern[str] | SubscriptionPattern
Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
Timestamp = int | datetime
"""Milliseconds since the epoch, or a datetime (without a zone: local time)."""

DEFAULT_POLL_S = 1.0
DEFAULT_CLOSE_S = 30.0
UNKNOWN_TOPIC_GRACE_MS = 5_000
"""A topic that was only just created may not have reached every broker."""
FOREVER_S = 1e9


class AsyncConsumer:
    """Reads topics, alone or as a member of a group.

        async with AsyncConsumer("localhost:9092", group_id="billing") as consumer:
            consumer.subscribe("orders")
            async for record in consumer:
                ...

    Not to be used by several tasks at once."""

    def __init__(
        self,
        bootstrap: str | list[str] | None = None,
        *,
        profile: Profile | None = None,
        topics: Topics | None = None,
        listener: Any = None,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        **properties: Any,
    ) -> None:
        self.config = ConsumerConfig.of(bootstrap, profile, properties)
        self.attention = False
        """Something other than records waits for the user to poll. Read by the user's thread."""
        self._first_topics = topics
        self._first_listener = listener
        self._subscription = Subscription()
        self._buffer = RecordBuffer(
            self._subscription, deserializer(key_deserializer), deserializer(value_deserializer)
        )
        self._failures: deque[ClientError] = deque()
        self._fatal: ClientError | None = None
        self._member: ClassicMember | ModernMember | None = None
        self._is_joining = False
        self._background: set[asyncio.Task[Any]] = set()
        self._is_started = self._is_closing = self._is_closed = False

    # ---------------------------------------------------------------------------- start and close

    async def start(self) -> Self:
        """Raises BrokersUnreachable, which names them, after `default.api.timeout.ms`."""
        if self._is_started:
            return self
        config = self.config
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._committing = asyncio.Lock()
        self._progress = PollProgress(self._loop.time())
        self._cluster = Cluster(config)
        if config.allow_auto_create_topics:
            self._cluster.allow_auto_create()
        self._lookup = OffsetLookup(self._cluster, config.isolation)
        self._group = GroupOffsets(self._cluster, config.group_id) if config.group_id else None
        self._rebalances = Rebalances(
            self._subscription, self._buffer, self._call_for_attention, self._before_revocation
        )
        self._positions = Positions(
            self._cluster, config, self._subscription, self._lookup, self._group,
            self._assignment_changed, self._fail,
        )  # fmt: skip
        self._fetcher = Fetcher(
            self._cluster, config, self._subscription, self._buffer,
            self._changed.set, self._fail, self._positions.out_of_range,
        )  # fmt: skip
        self._buffer.on_room = self._fetcher.pump
        if config.priority_levels > 1:
            priorities = Priorities(
                config.priority_levels, self._subscription, self._partition_count,
                self._loop.time, config.isolation,
            )  # fmt: skip
            self._buffer.order = priorities.order
            self._fetcher.is_wanted = priorities.is_wanted
        try:
            await self._cluster.start(timeout_ms=config.default_api_timeout_ms)
        except BaseException:
            await self._cluster.close()
            raise
        self._cluster.on_metadata.append(self._metadata_changed)
        self._is_started = True
        self._auto_commit_timer: asyncio.TimerHandle | None = None
        self._is_auto_commit_due = False
        self._plan_auto_commit()
        if self._first_topics is not None:
            self.subscribe(self._first_topics, listener=self._first_listener)
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await self.close(is_failed=error is not None)

    async def close(
        self, timeout_s: float | None = DEFAULT_CLOSE_S, *, is_failed: bool = False
    ) -> None:
        """Commits what was handed out (auto-commit), tells the listener, leaves the group.
        `is_failed`: what was handed out last was not dealt with, and is not committed."""
        if not self._is_started or self._is_closing:
            self._is_closing = self._is_closed = True
            return
        change = await self._begin_close(timeout_s, is_failed=is_failed)
        try:
            if change is not None:
                await self._tell(change)
        finally:
            await self._finish_close()

    async def _begin_close(self, timeout_s: float | None, *, is_failed: bool) -> Change | None:
        """Up to what a listener has to be told, who may still commit."""
        self._is_closing = True
        self._buffer.let_go() if is_failed else self._buffer.settle()
        if self._auto_commit_timer is not None:
            self._auto_commit_timer.cancel()
        await self._fetcher.close()
        await self._positions.close()
        timeout_ms = self._timeout_ms(timeout_s)
        owned = sorted(self._subscription.assignment)
        if self.config.enable_auto_commit and self._group is not None:
            await self._commit_quietly(self._subscription.positions(), timeout_ms)
        if self._subscription.is_of_group and owned and self._rebalances.listener is not None:
            return self._rebalances.revocation(owned)
        return None

    async def _finish_close(self) -> None:
        self._is_closed = True
        self._changed.set()
        self._rebalances.clear()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        try:
            if self._member is not None:
                await self._member.close()
        finally:
            await self._cluster.close()
            self._buffer.clear()

    # -------------------------------------------------------------------------------- subscribing

    def subscribe(self, topics: Topics, *, listener: Any = None) -> None:
        """Share these topics with the other members of the group. A compiled pattern, or a text
        that begins with ^, stands for all topics that match, also those that come later; a
        SubscriptionPattern leaves matching to the broker. The partitions arrive while polling.
        `listener`: see RebalanceListener."""
        self._check_open()
        if not self.config.group_id:
            raise InvalidConfig("Subscribing needs a group: set group.id (or use assign).")
        if isinstance(topics, str):
            topics = re.compile(topics) if topics.startswith("^") else [topics]
        if isinstance(topics, SubscriptionPattern):
            self._subscription.subscribe_remotely(topics.pattern)
            self._cluster.topics_of_interest = None
        elif isinstance(topics, re.Pattern):
            self._subscription.subscribe_pattern(topics)
            self._cluster.topics_of_interest = None
            self._spawn(self._refresh_for_pattern())
        else:
            names = list(topics)
            if not all(names):
                raise ValueError("The name of a topic is not empty.")
            self._subscription.subscribe(names)
            self._cluster.topics_of_interest = set(names)
            self._spawn(self._find_topics(names))
        self._rebalances.listener = listener
        self._join()

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, whatever a group does."""
        self._check_open()
        self._buffer.settle()
        wanted = [TopicPartition(*each) for each in partitions]
        self._subscription.assign(wanted)
        topics = sorted({tp.topic for tp in wanted})
        self._cluster.topics_of_interest = set(topics)
        self._spawn(self._find_topics(topics))
        self._assignment_changed()

    async def unsubscribe(self) -> None:
        """Give everything back, and leave the group."""
        self._check_open()
        change = await self._begin_unsubscribe()
        if change is not None:
            await self._tell(change)
        await self._finish_unsubscribe()

    async def _begin_unsubscribe(self) -> Change | None:
        self._buffer.settle()
        owned = sorted(self._subscription.assignment)
        if self.config.enable_auto_commit and self._group is not None:
            await self._commit_quietly(self._subscription.positions(), None)
        if self._subscription.is_of_group and owned and self._rebalances.listener is not None:
            return self._rebalances.revocation(owned)
        return None

    async def _finish_unsubscribe(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            await member.close()
        self._rebalances.clear()
        self._rebalances.listener = None
        self._buffer.clear()
        self._subscription.unsubscribe()

    def subscription(self) -> set[str]:
        return set(self._subscription.topics)

    def assignment(self) -> set[TopicPartition]:
        return self._subscription.assignment

    def _join(self) -> None:
        if self._member is not None:
            self._member.subscription_changed()
        elif not self._is_joining and (
            self._subscription.topics or self._subscription.remote_pattern
        ):
            self._is_joining = True
            self._spawn(self._become_member())

    async def _become_member(self) -> None:
        """Of the new protocol, if it is wanted and the broker has it."""
        protocol = self.config.group_protocol.lower()
        try:
            if protocol == "auto":
                protocol = await self._protocol_of_broker()
            if not self._subscription.is_of_group or self._is_closing:
                return
            join = self._join_modern if protocol == "consumer" else self._join_classic
            join()
        finally:
            self._is_joining = False

    async def _protocol_of_broker(self) -> str:
        if self.config.names_classic_settings:
            return "classic"
        group_id, kind = self.config.group_id, CoordinatorType.GROUP

        async def ask() -> Connection:
            node = await self._cluster.coordinator(kind, group_id)
            return await self._cluster.connection(node, Purpose.COORDINATION)

        connection = await self._cluster.retrying(ask, what=f"finding group {group_id}")
        return "consumer" if Api.CONSUMER_GROUP_HEARTBEAT in connection.api_versions else "classic"

    def _join_classic(self) -> None:
        if self._subscription.remote_pattern is not None:
            self._fail_for_good(UnsupportedVersion(
                "a SubscriptionPattern needs a group of the consumer protocol (KIP-848); "
                "a compiled pattern works with both"
            ))  # fmt: skip
            return
        self._member = ClassicMember(
            self._cluster, self.config, self._subscription, self._rebalances,
            self._progress, self._fail_for_good,
        )  # fmt: skip

    def _join_modern(self) -> None:
        self._member = ModernMember(
            self._cluster, self.config, self._subscription, self._rebalances,
            self._progress, self._fail_for_good, self._modern_is_refused,
        )  # fmt: skip

    def _modern_is_refused(self, error: ClientError) -> None:
        self._member = None
        if self.config.group_protocol.lower() == "auto":
            logger.info("group %s uses the classic protocol: %s", self.config.group_id, error)
            self._join_classic()
        else:
            self._fail_for_good(error)

    async def _refresh_for_pattern(self) -> None:
        await self._cluster.refresh(None)
        self._match_pattern()

    def _match_pattern(self) -> None:
        known = self._cluster.metadata.topics
        skip_internal = self.config.exclude_internal_topics
        names = [name for name, topic in known.items() if not (skip_internal and topic.is_internal)]
        if self._subscription.match(names):
            self._join()

    async def _find_topics(self, names: Iterable[str]) -> None:
        """Tell the user, once, of topics that are not there or not for us."""
        await asyncio.gather(*map(self._find_topic, names))
        self._assignment_changed()

    async def _find_topic(self, name: str) -> None:
        timeout_ms = min(UNKNOWN_TOPIC_GRACE_MS, self.config.default_api_timeout_ms)
        try:
            found = await self._cluster.topic(name, timeout_ms=timeout_ms)
            levels = self.config.priority_levels
            if found.partition_count < levels:
                self._fail(ClientError(
                    f"{levels} priorities need at least {levels} partitions, and topic {name} has "
                    f"{found.partition_count}",
                    code=ErrorCode.INVALID_PARTITIONS, topic=name,
                ))  # fmt: skip
        except ClientError as error:
            if isinstance(error, UnknownTopic) or not error.retriable:
                self._fail(error)

    # ------------------------------------------------------------------------------------ polling

    async def poll(
        self, timeout_s: float | None = DEFAULT_POLL_S, max_records: int | None = None
    ) -> list[Record]:
        """The next records, as soon as there are any; none after the timeout (None: wait for
        ever). Those of the last poll count as consumed."""
        records = await self._poll(timeout_s, max_records)
        self._buffer.is_delivered = True
        return records

    async def _poll(self, timeout_s: float | None, max_records: int | None) -> list[Record]:
        limit = self._limit(max_records)
        return await self._poll_with(timeout_s, lambda: self._buffer.take(limit)) or []

    async def _poll_with(self, timeout_s: float | None, take: Callable[[], T]) -> T | None:
        """What `take` takes from the buffer, as soon as that is something; None at the timeout."""
        taken = self.take_now(take)
        deadline = self._deadline(timeout_s)
        while not taken:
            outcome = await self._ready(deadline)
            if isinstance(outcome, Change):
                await self._tell(outcome)
            elif outcome:
                taken = take()
            else:
                return None
        return taken

    def take_now(self, take: Callable[[], T]) -> T | None:
        """What is at hand, if nothing else is to be done. May be called by the user's thread."""
        if self.attention or self._is_closing:
            return None
        self._buffer.settle()
        self._progress.polls += 1
        return take()

    async def _ready(self, deadline: float) -> bool | Change:
        """True when there may be something to take, False at the deadline; or a change that the
        listener must be told of."""
        self._check_open()
        self._progress.is_in_poll = True
        try:
            self._buffer.settle()
            if self._member is not None:
                self._member.polled()
            while True:
                self.attention = False
                if self._rebalances.has_pending:
                    change = await self._rebalances.begin()
                    if change is not None:
                        self.attention = True
                        return change
                self._raise_failure()
                self._auto_commit()
                self._changed.clear()
                if self._buffer.has_records():
                    return True
                if self._loop.time() >= deadline:
                    return False
                await self._wait(deadline)
                self._check_open()
        finally:
            self._progress.is_in_poll = False
            self._progress.polls += 1

    async def _wait(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self.config.max_poll_records
        if max_records < 1:
            raise ValueError("max_records must be at least 1.")
        return max_records

    async def _tell(self, change: Change) -> None:
        """Run the listener here."""
        try:
            answer = self._rebalances.callback(change)()
            if asyncio.iscoroutine(answer):
                await answer
        finally:
            self._rebalances.finish(change)

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
        """What has been fetched, as an Arrow table, as soon as there is anything; a table without
        rows after the timeout. At most `max_records`, and about `max_bytes` of what was fetched
        (`fetch.max.bytes`). See `consumer.table` for the columns, and for values that are JSON.
        Key and value are bytes: deserialisers are not called."""
        from ottla.client.consumer.table import TableReader

        reader = TableReader(columns, value, schema)
        take = self._taking_batches(reader, max_records, max_bytes)
        table = reader.table(await self._poll_with(timeout_s, take) or [])
        self._buffer.is_delivered = True
        return table

    async def iter_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        value: str | None = None,
        schema: pyarrow.Schema | None = None,
    ) -> AsyncIterator[pyarrow.RecordBatch]:
        """All records, for ever, as Arrow record batches. What was yielded counts as consumed when
        the next is asked for."""
        from ottla.client.consumer.table import TableReader

        take = self._taking_batches(TableReader(columns, value, schema), None, 1)
        while True:
            batches = await self._poll_with(None, take) or []
            self._buffer.is_delivered = True
            for batch in batches:
                yield batch

    def _taking_batches(
        self, reader: TableReader, max_records: int | None, max_bytes: int | None
    ) -> Callable[[], list[Any]]:
        for limit in (max_records, max_bytes):
            if limit is not None and limit < 1:
                raise ValueError("max_records and max_bytes must be at least 1.")
        most = self.config.fetch_max_bytes if max_bytes is None else max_bytes
        return lambda: self._buffer.take_whole(reader.read, max_records, most)

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Record]:
        progress, buffer = self._progress, self._buffer
        while True:
            for record in buffer.hand_out_singly(await self._poll(None, None)):
                progress.last = record
                yield record
                if self.attention:
                    break

    def _raise_failure(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._failures:
            raise self._failures.popleft()
        for state in self._subscription:
            if state.failure is not None:
                raise state.failure

    # ----------------------------------------------------------------------------------- committing

    async def commit(
        self, offsets: Offsets | None = None, *, wait: bool = True, timeout_s: float | None = None
    ) -> None:
        """Commit these offsets, or the positions: all that was handed out counts as consumed.
        Raises CommitFailed if the group has moved on. Not waiting, a failure is only logged."""
        self._check_open()
        self._buffer.settle()
        group = self._need_group()
        wanted = self._subscription.positions() if offsets is None else _offsets(offsets)
        if not wait:
            self._spawn(self._commit_quietly(wanted, None))
            return
        async with self._committing:
            await group.commit(
                wanted, self._committing_member, timeout_ms=self._timeout_ms(timeout_s)
            )

    def commit_async(
        self,
        offsets: Offsets | None = None,
        callback: Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], Any]
        | None = None,
    ) -> None:
        """Commit in the background; `callback(offsets, error)` is told how it went."""
        self._check_open()
        self._buffer.settle()
        self._need_group()
        wanted = self._subscription.positions() if offsets is None else _offsets(offsets)
        self._spawn(self._commit_quietly(wanted, None, callback))

    async def _commit_quietly(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int | None,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        group = self._need_group()
        failure: KafkaError | None = None
        try:
            async with self._committing:
                await group.commit(offsets, self._committing_member, timeout_ms=timeout_ms)
        except KafkaError as error:
            failure = error
            if callback is None:
                logger.warning("offsets were not committed: %s", error)
        if callback is not None:
            callback(offsets, failure)

    def _committing_member(self) -> GroupMetadata:
        member = self.group_metadata()
        if self._subscription.is_of_group and member.generation_id < 0:
            raise CommitFailed(
                f"this consumer is not in group {member.group_id} now: "
                "its partitions may be others' to commit"
            )
        return member

    async def _before_revocation(self, partitions: Sequence[TopicPartition]) -> None:
        self._buffer.settle()
        if self.config.enable_auto_commit:
            timeout_ms = min(self.config.default_api_timeout_ms, self.config.max_poll_interval_ms)
            await self._commit_quietly(self._subscription.positions(partitions), timeout_ms)

    def _plan_auto_commit(self) -> None:
        if self.config.enable_auto_commit and self.config.group_id:
            pause_s = self.config.auto_commit_interval_ms / 1000
            self._auto_commit_timer = self._loop.call_later(pause_s, self._auto_commit_is_due)

    def _auto_commit_is_due(self) -> None:
        self._is_auto_commit_due = True
        self._call_for_attention()

    def _auto_commit(self) -> None:
        if self._is_auto_commit_due:
            self._is_auto_commit_due = False
            self._plan_auto_commit()
            positions = self._subscription.positions()
            if positions:
                self._spawn(self._commit_quietly(positions, None))

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group: for a transaction that commits its offsets."""
        self._need_group()
        if self._member is not None:
            return self._member.metadata
        return GroupMetadata(self.config.group_id)

    # ------------------------------------------------------------------------------------ positions

    async def position(self, tp: TopicPartition, *, timeout_s: float | None = None) -> int:
        """The offset of the next record that will be handed out."""
        tp = TopicPartition(*tp)
        state = self._subscription.state(tp)
        deadline = self._deadline(self._timeout_ms(timeout_s) / 1000)
        while True:
            in_hand = self._buffer.in_hand_position(tp)
            if in_hand is not None:
                return in_hand
            if state.position is not None and state.reset is None:
                return state.position
            if state.failure is not None:
                raise state.failure
            if self._loop.time() >= deadline:
                raise KafkaTimeout(f"the position of {tp} was not found in time")
            self._changed.clear()
            await self._wait(min(deadline, self._loop.time() + 0.05))

    def seek(self, tp: TopicPartition | tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Go on from this offset."""
        if isinstance(offset, OffsetAndMetadata):
            number, epoch = offset.offset, offset.leader_epoch
        else:
            number, epoch = offset, -1
        if number < 0:
            raise ValueError(f"An offset is at least 0, not {number}.")
        state = self._subscription.state(TopicPartition(*tp))
        self._buffer.settle()
        state.seek(number, epoch)
        self._moved([state.tp])

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Of these, or of all that are assigned."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._seek_to(partitions, LATEST)

    def seek_to_timestamp(self, timestamp: Timestamp, *partitions: TopicPartition) -> None:
        """To the first record at or after this time; where there is none, to the end."""
        self._seek_to(partitions, _milliseconds(timestamp))

    def _seek_to(self, partitions: Sequence[TopicPartition], timestamp: int) -> None:
        wanted = partitions or sorted(self._subscription.assignment)
        states = [self._subscription.state(TopicPartition(*tp)) for tp in wanted]
        self._buffer.settle()
        for state in states:
            state.want_reset(timestamp)
        self._moved([state.tp for state in states])

    def _moved(self, partitions: Iterable[TopicPartition]) -> None:
        self._buffer.drop(partitions)
        self._call_for_attention()
        self._assignment_changed()

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until they are resumed."""
        self._set_paused(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Sequence[TopicPartition], is_paused: bool) -> None:
        states = [self._subscription.state(TopicPartition(*tp)) for tp in partitions]
        for state in states:
            state.is_paused = is_paused
        self._call_for_attention()
        self._assignment_changed()

    def paused(self) -> set[TopicPartition]:
        return self._subscription.paused

    async def committed(
        self, *partitions: TopicPartition, timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for these, or for all that are assigned; None: nothing."""
        self._check_open()
        wanted = [TopicPartition(*tp) for tp in partitions] or sorted(self.assignment())
        found = await self._need_group().fetch(wanted, timeout_ms=self._timeout_ms(timeout_s))
        return {tp: found.get(tp) for tp in wanted}

    async def lag(self, tp: TopicPartition, *, timeout_s: float | None = None) -> int:
        """How many offsets lie between the position and the end of what may be read."""
        position = await self.position(tp, timeout_s=timeout_s)
        state = self._subscription.state(TopicPartition(*tp))
        end = state.last_stable_offset if self.config.isolation else state.high_watermark
        if end < position:
            end = (await self.end_offsets(tp, timeout_s=timeout_s))[TopicPartition(*tp)]
        return max(end - position, 0)

    async def beginning_offsets(
        self, *partitions: TopicPartition, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self._ends(partitions, EARLIEST, timeout_s)

    async def end_offsets(
        self, *partitions: TopicPartition, timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Where the next records will be written; with read_committed, where the first open
        transaction begins."""
        return await self._ends(partitions, LATEST, timeout_s)

    async def _ends(
        self, partitions: Sequence[TopicPartition], which: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        wanted = [TopicPartition(*tp) for tp in partitions] or sorted(self.assignment())
        found = await self._look_up(dict.fromkeys(wanted, which), timeout_s)
        return {tp: found[tp].offset for tp in wanted}

    async def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, Timestamp],
        *,
        timeout_s: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time; None where there is none."""
        wanted = {TopicPartition(*tp): _milliseconds(at) for tp, at in timestamps.items()}
        found = await self._look_up(wanted, timeout_s)
        return {tp: found[tp] if found[tp].offset >= 0 else None for tp in wanted}

    async def _look_up(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self._check_open()
        return await self._lookup.list(timestamps, timeout_ms=self._timeout_ms(timeout_s))

    async def partitions_for(
        self, topic: str, *, timeout_s: float | None = None
    ) -> list[TopicPartition]:
        """Raises UnknownTopic."""
        self._check_open()
        known = await self._cluster.topic(topic, timeout_ms=self._timeout_ms(timeout_s))
        return [TopicPartition(topic, number) for number in range(known.partition_count)]

    # ----------------------------------------------------------------------------------- insides

    def _partition_count(self, topic: str) -> int:
        known = self._cluster.metadata.topics.get(topic)
        return 0 if known is None else known.partition_count

    def _call_for_attention(self) -> None:
        self.attention = True
        self._changed.set()
        self._assignment_changed()

    def _assignment_changed(self) -> None:
        self._positions.wake()
        self._fetcher.pump()
        self._changed.set()

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        if self._subscription.pattern is not None:
            self._match_pattern()
        if self._member is not None:
            self._member.metadata_changed()
        for state in self._subscription:
            epoch = metadata.leader_epoch(*state.tp)
            if 0 <= state.leader_epoch < epoch:
                state.leader_epoch = epoch
                self._positions.leader_changed(state)
        self._assignment_changed()

    def _fail(self, error: ClientError) -> None:
        """The user is told with the next poll."""
        if error.fatal:
            self._fail_for_good(error)
        elif not any(str(error) == str(known) for known in self._failures):
            self._failures.append(error)
            self._call_for_attention()

    def _fail_for_good(self, error: ClientError) -> None:
        """The user is told with every poll."""
        self._fatal = error
        self._call_for_attention()

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), ClientError):
            self._fail(error)

    def _need_group(self) -> GroupOffsets:
        if self._group is None:
            raise InvalidConfig("Offsets are committed for a group: set group.id.")
        return self._group

    def _check_open(self) -> None:
        if self._is_closed or not self._is_started:
            what = "is closed" if self._is_closed else "was not started"
            raise ClientClosed(f"the consumer {what}")

    def _timeout_ms(self, timeout_s: float | None) -> int:
        return self.config.default_api_timeout_ms if timeout_s is None else int(timeout_s * 1000)

    def _deadline(self, timeout_s: float | None) -> float:
        return self._loop.time() + (FOREVER_S if timeout_s is None else max(timeout_s, 0.0))


def _offsets(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    found = {
        TopicPartition(*tp): value if isinstance(value, OffsetAndMetadata)
        else OffsetAndMetadata(value)
        for tp, value in offsets.items()
    }  # fmt: skip
    for tp, value in found.items():
        if value.offset < 0:
            raise ValueError(f"An offset is at least 0, not {value.offset} (for {tp}).")
    return found


def _milliseconds(timestamp: Timestamp) -> int:
    if isinstance(timestamp, datetime):
        since = timestamp.astimezone(UTC) - datetime.fromtimestamp(0, UTC)
        return -(-since // timedelta(milliseconds=1))  # the first whole one from then on
    if timestamp < 0:
        raise ValueError(f"A timestamp is at least 0, not {timestamp}.")
    return int(timestamp)
