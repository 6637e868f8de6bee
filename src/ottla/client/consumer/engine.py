"""Core of the consumer: the connection of its parts, subscriptions, and waiting for records.

All background activity ends here. New data wakes a waiting poll; failures are kept for the next
poll to raise; and work that must happen within a poll (a listener, a commit that is due) sets
`attention`."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.consumer.buffer import RecordBuffer
from ottla.client.consumer.commits import GroupOffsets
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.joining import Joining
from ottla.client.consumer.membership import PollProgress
from ottla.client.consumer.offsets import OffsetLookup
from ottla.client.consumer.positions import Positions
from ottla.client.consumer.priorities import Priorities
from ottla.client.consumer.rebalance import Change, RebalanceListener, Rebalances
from ottla.client.consumer.record import (
    GroupMetadata,
    OffsetAndMetadata,
    SubscriptionPattern,
)
from ottla.client.consumer.subscription import Subscription, Topics, wanted_topics
from ottla.client.errors import (
    ClientClosed,
    ClientError,
    CommitFailed,
    InvalidConfig,
    KafkaError,
    UnknownTopic,
    timed_out,
)
from ottla.client.metadata import ClusterMetadata
from ottla.client.serializers import Deserializer

if TYPE_CHECKING:
    from ottla.client.consumer.table import TableReader

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_CLOSE_S = 30.0
UNKNOWN_TOPIC_GRACE_MS = 5_000
"""Time limit for a topic that was just created to become known to all brokers."""
FOREVER_S = 1e9

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], Any]
"""Function that is called with the offsets of a commit, and its error or None."""


class ConsumerEngine:
    """Parts of a consumer, connected.

    `AsyncConsumer` awaits its coroutines. `Consumer` runs them on the loop, and takes records and
    calls the listener in the user's thread."""

    def __init__(
        self,
        config: ConsumerConfig,
        topics: Topics | None,
        listener: RebalanceListener | None,
        *,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
    ) -> None:
        self.config = config
        self.attention = False
        """Whether the loop must act before more records are returned."""
        self._first_topics = None if topics is None else self._wanted_topics(topics)
        self._first_listener = listener
        self.subscription = Subscription()
        self.buffer = RecordBuffer(self.subscription, key_deserializer, value_deserializer)
        self._failures: deque[ClientError] = deque()
        self._fatal: ClientError | None = None
        self._background: set[asyncio.Task[object]] = set()
        self._is_started = self._is_closing = self._is_closed = False

    async def start(self) -> None:
        if self._is_started:
            return
        config = self.config
        self.loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._committing = asyncio.Lock()
        self.progress = PollProgress(self.loop.time())
        self.cluster = Cluster(config)
        if config.allow_auto_create_topics:
            self.cluster.allow_auto_create()
        self.lookup = OffsetLookup(self.cluster, config.isolation)
        self._group = GroupOffsets(self.cluster, config.group_id) if config.group_id else None
        self.rebalances = Rebalances(
            self.subscription, self.buffer, self.wake_poll, self._before_revocation
        )
        self._joining = Joining(
            self.cluster, config, self.subscription, self.rebalances, self.progress,
            self._fail_for_good,
        )  # fmt: skip
        self._positions = Positions(
            self.cluster, config, self.subscription, self.lookup, self._group,
            self._assignment_changed, self._fail,
        )  # fmt: skip
        self.fetcher = Fetcher(
            self.cluster, config, self.subscription, self.buffer,
            self._changed.set, self._fail, self._positions.out_of_range,
        )  # fmt: skip
        self.buffer.on_room = self.fetcher.pump
        if config.priority_levels > 1:
            priorities = Priorities(
                config.priority_levels, self.subscription, self._partition_count,
                self.loop.time, config.isolation,
            )  # fmt: skip
            self.buffer.order = priorities.order
            self.fetcher.is_wanted = priorities.is_wanted
        await self.cluster.start(timeout_ms=config.default_api_timeout_ms)
        self.cluster.on_metadata.append(self._metadata_changed)
        self._is_started = True
        self._auto_commit_timer: asyncio.TimerHandle | None = None
        self._is_auto_commit_due = False
        self._plan_auto_commit()
        if self._first_topics is not None:
            self.subscribe(self._first_topics, self._first_listener)

    async def close(
        self, timeout_s: float | None = DEFAULT_CLOSE_S, *, is_failed: bool = False
    ) -> None:
        if self._is_closing:
            self._is_closed = True
            return
        change = await self.begin_close(timeout_s, is_failed=is_failed)
        try:
            if change is not None:
                await self.run_listener(change)
        finally:
            await self.finish_close()

    async def begin_close(self, timeout_s: float | None, *, is_failed: bool) -> Change | None:
        """Close up to the point where the listener runs, which may still commit."""
        self._is_closing = True
        if not self._is_started:
            return None
        self.buffer.discard_in_hand() if is_failed else self.buffer.mark_consumed()
        if self._auto_commit_timer is not None:
            self._auto_commit_timer.cancel()
        await self.fetcher.close()
        await self._positions.close()
        timeout_ms = self.timeout_ms(timeout_s)
        owned = sorted(self.subscription.assignment)
        if self.config.enable_auto_commit and self._group is not None:
            await self._commit_quietly(self.subscription.positions(), timeout_ms)
        if self.subscription.is_of_group and owned and self.rebalances.listener is not None:
            return self.rebalances.revocation(owned)
        return None

    async def finish_close(self) -> None:
        self._is_closed = True
        if not self._is_started:
            return
        self._changed.set()
        self.rebalances.clear()
        for task in list(self._background):
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        try:
            await self._joining.leave()
        finally:
            await self.cluster.close()
            self.buffer.clear()

    def subscribe(self, topics: Topics, listener: RebalanceListener | None = None) -> None:
        self.check_open()
        wanted = self._wanted_topics(topics)
        if isinstance(wanted, SubscriptionPattern):
            self.subscription.subscribe_remotely(wanted.pattern)
            self.cluster.topics_of_interest = None
        elif isinstance(wanted, re.Pattern):
            self.subscription.subscribe_pattern(wanted)
            self.cluster.topics_of_interest = None
            self._spawn(self._refresh_for_pattern())
        else:
            self.subscription.subscribe(wanted)
            self.cluster.topics_of_interest = set(wanted)
            self._spawn(self._find_topics(wanted))
        self.rebalances.listener = listener
        self._join()

    def _wanted_topics(self, topics: Topics) -> list[str] | re.Pattern[str] | SubscriptionPattern:
        if not self.config.group_id:
            raise InvalidConfig(
                "Subscribing to topics needs a consumer group: set group_id, or call assign() to "
                "read partitions without a group."
            )
        return wanted_topics(topics)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.check_open()
        self.buffer.mark_consumed()
        wanted = list(partitions)
        self.subscription.assign(wanted)
        topics = sorted({tp.topic for tp in wanted})
        self.cluster.topics_of_interest = set(topics)
        self._spawn(self._find_topics(topics))
        self._assignment_changed()

    async def unsubscribe(self) -> None:
        self.check_open()
        change = await self.begin_unsubscribe()
        if change is not None:
            await self.run_listener(change)
        await self.finish_unsubscribe()

    async def begin_unsubscribe(self) -> Change | None:
        self.buffer.mark_consumed()
        owned = sorted(self.subscription.assignment)
        if self.config.enable_auto_commit and self._group is not None:
            await self._commit_quietly(self.subscription.positions(), None)
        if self.subscription.is_of_group and owned and self.rebalances.listener is not None:
            return self.rebalances.revocation(owned)
        return None

    async def finish_unsubscribe(self) -> None:
        await self._joining.leave()
        self.rebalances.clear()
        self.rebalances.listener = None
        self.buffer.clear()
        self.subscription.unsubscribe()

    def _join(self) -> None:
        if self._joining.must_begin():
            self._spawn(self._joining.join())

    async def _refresh_for_pattern(self) -> None:
        await self.cluster.refresh(None)
        self._match_pattern()

    def _match_pattern(self) -> None:
        known = self.cluster.metadata.topics
        skip_internal = self.config.exclude_internal_topics
        names = [name for name, topic in known.items() if not (skip_internal and topic.is_internal)]
        if self.subscription.match(names):
            self._join()

    async def _find_topics(self, names: Iterable[str]) -> None:
        """Report topics that do not exist or are not authorized, once."""
        await asyncio.gather(*map(self._find_topic, names))
        self._assignment_changed()

    async def _find_topic(self, name: str) -> None:
        timeout_ms = min(UNKNOWN_TOPIC_GRACE_MS, self.config.default_api_timeout_ms)
        try:
            found = await self.cluster.topic(name, timeout_ms=timeout_ms)
            levels = self.config.priority_levels
            if found.partition_count < levels:
                self._fail(ClientError(
                    f"{levels} priorities need at least {levels} partitions, but topic {name!r} "
                    f"has {found.partition_count}",
                    code=ErrorCode.INVALID_PARTITIONS, topic=name,
                ))  # fmt: skip
        except ClientError as error:
            if isinstance(error, UnknownTopic) or not error.retriable:
                self._fail(error)

    async def poll_with(self, timeout_s: float | None, take: Callable[[], T]) -> T | None:
        """Return the result of `take` as soon as it is not empty, or None after the timeout."""
        taken = self.take_now(take)
        deadline = self.deadline(timeout_s)
        while not taken:
            outcome = await self.ready(deadline)
            if isinstance(outcome, Change):
                await self.run_listener(outcome)
            elif outcome:
                taken = take()
            else:
                return None
        return taken

    def take_now(self, take: Callable[[], T]) -> T | None:
        """Return the result of `take`, or None if the loop must act first.

        Any thread may call it.
        """
        if self.attention or self._is_closing:
            return None
        self.buffer.mark_consumed()
        self.progress.polls += 1
        return take()

    async def ready(self, deadline: float) -> bool | Change:
        """Wait until there may be records.

        Returns:
            True if there may be records, False at the deadline, or a change for which the listener
            must run.
        """
        self.check_open()
        self.progress.is_in_poll = True
        try:
            self.buffer.mark_consumed()
            if self._joining.member is not None:
                self._joining.member.polled()
            while True:
                self.attention = False
                if self.rebalances.has_pending:
                    change = await self.rebalances.begin()
                    if change is not None:
                        self.attention = True
                        return change
                self._raise_failure()
                self._auto_commit()
                self._changed.clear()
                if self.buffer.has_records():
                    return True
                if self.loop.time() >= deadline:
                    return False
                await self._wait(deadline)
                self.check_open()
        finally:
            self.progress.is_in_poll = False
            self.progress.polls += 1

    async def _wait(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()
        except TimeoutError:
            pass

    def limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self.config.max_poll_records
        if max_records < 1:
            raise ValueError("max_records must be at least 1.")
        return max_records

    def taking_batches(
        self, reader: TableReader, max_records: int | None, max_bytes: int | None
    ) -> Callable[[], list[Any]]:
        """Return a function that takes fetched records as Arrow batches."""
        for limit in (max_records, max_bytes):
            if limit is not None and limit < 1:
                raise ValueError("max_records and max_bytes must be at least 1.")
        most = self.config.fetch_max_bytes if max_bytes is None else max_bytes
        return lambda: self.buffer.take_whole(reader.read, max_records, most)

    async def run_listener(self, change: Change) -> None:
        """Run the listener in this task."""
        try:
            response = self.rebalances.callback(change)()
            if asyncio.iscoroutine(response):
                await response
        finally:
            self.rebalances.finish(change)

    def _raise_failure(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._failures:
            raise self._failures.popleft()
        for state in self.subscription:
            if state.failure is not None:
                raise state.failure

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, timeout_s: float | None
    ) -> None:
        """Commit offsets, or the positions if `offsets` is None, and wait for the coordinator."""
        group, wanted = self._to_commit(offsets)
        async with self._committing:
            await group.commit(
                wanted, self._committing_member, timeout_ms=self.timeout_ms(timeout_s)
            )

    def commit_in_background(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        callback: CommitCallback | None,
    ) -> None:
        """Begin a commit and return. Without a callback, a failure is only logged."""
        _, wanted = self._to_commit(offsets)
        self._spawn(self._commit_quietly(wanted, None, callback))

    def _to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
    ) -> tuple[GroupOffsets, Mapping[TopicPartition, OffsetAndMetadata]]:
        self.check_open()
        self.buffer.mark_consumed()
        group = self.need_group()
        return group, self.subscription.positions() if offsets is None else offsets

    async def _commit_quietly(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int | None,
        callback: CommitCallback | None = None,
    ) -> None:
        group = self.need_group()
        failure: KafkaError | None = None
        try:
            async with self._committing:
                await group.commit(offsets, self._committing_member, timeout_ms=timeout_ms)
        except KafkaError as error:
            failure = error
            if callback is None:
                logger.warning("could not commit offsets: %s", error)
        if callback is not None:
            callback(offsets, failure)

    def _committing_member(self) -> GroupMetadata:
        member = self.group_metadata()
        if self.subscription.is_of_group and member.generation_id < 0:
            raise CommitFailed(
                f"this consumer is not a member of group {member.group_id} now: "
                "other members may own its partitions"
            )
        return member

    async def _before_revocation(self, partitions: Sequence[TopicPartition]) -> None:
        self.buffer.mark_consumed()
        if self.config.enable_auto_commit:
            timeout_ms = min(self.config.default_api_timeout_ms, self.config.max_poll_interval_ms)
            await self._commit_quietly(self.subscription.positions(partitions), timeout_ms)

    def _plan_auto_commit(self) -> None:
        if self.config.enable_auto_commit and self.config.group_id:
            pause_s = self.config.auto_commit_interval_ms / 1000
            self._auto_commit_timer = self.loop.call_later(pause_s, self._auto_commit_is_due)

    def _auto_commit_is_due(self) -> None:
        self._is_auto_commit_due = True
        self.wake_poll()

    def _auto_commit(self) -> None:
        if self._is_auto_commit_due:
            self._is_auto_commit_due = False
            self._plan_auto_commit()
            positions = self.subscription.positions()
            if positions:
                self._spawn(self._commit_quietly(positions, None))

    async def position(self, tp: TopicPartition, timeout_s: float | None) -> int:
        state = self.subscription.state(tp)
        timeout_ms = self.timeout_ms(timeout_s)
        deadline = self.deadline(timeout_ms / 1000)
        while True:
            in_hand = self.buffer.in_hand_position(tp)
            if in_hand is not None:
                return in_hand
            if state.position is not None and state.reset is None:
                return state.position
            if state.failure is not None:
                raise state.failure
            if self.loop.time() >= deadline:
                cause = self._positions.last_failure or self.cluster.unreachable_reason
                raise timed_out(f"finding the position of {tp}", timeout_ms, cause)
            self._changed.clear()
            await self._wait(min(deadline, self.loop.time() + 0.05))

    def group_metadata(self) -> GroupMetadata:
        self.need_group()
        if self._joining.member is not None:
            return self._joining.member.metadata
        return GroupMetadata(self.config.group_id)

    def _partition_count(self, topic: str) -> int:
        known = self.cluster.metadata.topics.get(topic)
        return 0 if known is None else known.partition_count

    def wake_poll(self) -> None:
        """Make the next poll, or the one that waits, look at what has changed."""
        self.attention = True
        self._changed.set()
        self._assignment_changed()

    def _assignment_changed(self) -> None:
        self._positions.wake()
        self.fetcher.pump()
        self._changed.set()

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        if self.subscription.pattern is not None:
            self._match_pattern()
        if self._joining.member is not None:
            self._joining.member.metadata_changed()
        for state in self.subscription:
            epoch = metadata.leader_epoch(*state.tp)
            if 0 <= state.leader_epoch < epoch:
                state.leader_epoch = epoch
                self._positions.leader_changed(state)
        self._assignment_changed()

    def _fail(self, error: ClientError) -> None:
        """Record a failure for the next poll to raise."""
        if error.fatal:
            self._fail_for_good(error)
        elif not any(str(error) == str(known) for known in self._failures):
            self._failures.append(error)
            self.wake_poll()

    def _fail_for_good(self, error: ClientError) -> None:
        """Record a failure that every poll raises from now on."""
        self._fatal = error
        self.wake_poll()

    def _spawn(self, coroutine: Coroutine[object, None, object]) -> None:
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background_done)

    def _background_done(self, task: asyncio.Task[object]) -> None:
        self._background.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), ClientError):
            self._fail(error)

    def need_group(self) -> GroupOffsets:
        if self._group is None:
            raise InvalidConfig("Committing offsets needs a consumer group: set group_id.")
        return self._group

    def check_open(self) -> None:
        if self._is_closed or not self._is_started:
            what = "is closed" if self._is_closed else "was not started"
            raise ClientClosed(f"the consumer {what}")

    def timeout_ms(self, timeout_s: float | None) -> int:
        return self.config.default_api_timeout_ms if timeout_s is None else int(timeout_s * 1000)

    def deadline(self, timeout_s: float | None) -> float:
        return self.loop.time() + (FOREVER_S if timeout_s is None else max(timeout_s, 0.0))
