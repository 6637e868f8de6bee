"""Core of the consumer: the connection of its parts, subscriptions, and waiting for records.

All background activity ends here. New data wakes a waiting poll; failures are kept for the next
poll to raise; and work that must happen within a poll (a listener, a commit that is due) sets
`attention`."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.config import Bootstrap, Profile
from ottla.client.consumer.buffer import RecordBuffer
from ottla.client.consumer.commits import GroupOffsets
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.joining import Joining
from ottla.client.consumer.membership import PollProgress
from ottla.client.consumer.offsets import OffsetLookup
from ottla.client.consumer.positions import Positions
from ottla.client.consumer.priorities import Priorities
from ottla.client.consumer.rebalance import Change, Rebalances
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
)
from ottla.client.metadata import ClusterMetadata
from ottla.client.serializers import Deserializer, deserializer

logger = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_CLOSE_S = 30.0
UNKNOWN_TOPIC_GRACE_MS = 5_000
"""Time limit for a topic that was just created to become known to all brokers."""
FOREVER_S = 1e9


class ConsumerEngine:
    """Base class of `AsyncConsumer`, which `Consumer` drives from the user's thread."""

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
        self.config = ConsumerConfig.of(bootstrap, profile, properties)
        self.attention = False
        """Whether the loop must act before more records are returned."""
        self._first_topics = None if topics is None else self._wanted_topics(topics)
        self._first_listener = listener
        self._subscription = Subscription()
        self._buffer = RecordBuffer(
            self._subscription, deserializer(key_deserializer), deserializer(value_deserializer)
        )
        self._failures: deque[ClientError] = deque()
        self._fatal: ClientError | None = None
        self._background: set[asyncio.Task[Any]] = set()
        self._is_started = self._is_closing = self._is_closed = False

    async def start(self) -> Self:
        """Reach the cluster, and subscribe to the topics passed to the constructor.

        Raises:
            BrokersUnreachable: No broker answered within `default.api.timeout.ms`.
        """
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
            self._subscription, self._buffer, self._wake_poll, self._before_revocation
        )
        self._joining = Joining(
            self._cluster, config, self._subscription, self._rebalances, self._progress,
            self._fail_for_good,
        )  # fmt: skip
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
        await self._cluster.start(timeout_ms=config.default_api_timeout_ms)
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
        """Commit the positions if `enable.auto.commit` is on, leave the group and disconnect.

        The listener's `on_revoked` is called before the consumer leaves.

        Args:
            timeout_s: Seconds to wait for the commit.
            is_failed: Do not commit the records that were returned last. The `with` statement sets
                this when its block raises.
        """
        if not self._is_started or self._is_closing:
            self._is_closing = self._is_closed = True
            return
        change = await self._begin_close(timeout_s, is_failed=is_failed)
        try:
            if change is not None:
                await self._run_listener(change)
        finally:
            await self._finish_close()

    async def _begin_close(self, timeout_s: float | None, *, is_failed: bool) -> Change | None:
        """Close up to the point where the listener runs, which may still commit."""
        self._is_closing = True
        self._buffer.discard_in_hand() if is_failed else self._buffer.mark_consumed()
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
            await self._joining.leave()
        finally:
            await self._cluster.close()
            self._buffer.clear()

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
        self._check_open()
        wanted = self._wanted_topics(topics)
        if isinstance(wanted, SubscriptionPattern):
            self._subscription.subscribe_remotely(wanted.pattern)
            self._cluster.topics_of_interest = None
        elif isinstance(wanted, re.Pattern):
            self._subscription.subscribe_pattern(wanted)
            self._cluster.topics_of_interest = None
            self._spawn(self._refresh_for_pattern())
        else:
            self._subscription.subscribe(wanted)
            self._cluster.topics_of_interest = set(wanted)
            self._spawn(self._find_topics(wanted))
        self._rebalances.listener = listener
        self._join()

    def _wanted_topics(self, topics: Topics) -> list[str] | re.Pattern[str] | SubscriptionPattern:
        if not self.config.group_id:
            raise InvalidConfig(
                "Subscribing to topics needs a consumer group: set group_id, or call assign() to "
                "read partitions without a group."
            )
        return wanted_topics(topics)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, without joining a group.

        Args:
            partitions: Partitions to read; they replace the previous assignment.

        Example:
            consumer.assign([TopicPartition("orders", 0)])
        """
        self._check_open()
        self._buffer.mark_consumed()
        wanted = [TopicPartition(*each) for each in partitions]
        self._subscription.assign(wanted)
        topics = sorted({tp.topic for tp in wanted})
        self._cluster.topics_of_interest = set(topics)
        self._spawn(self._find_topics(topics))
        self._assignment_changed()

    async def unsubscribe(self) -> None:
        """Give up all partitions and leave the group.

        The positions are committed first if `enable.auto.commit` is on, and the listener's
        `on_revoked` is called.
        """
        self._check_open()
        change = await self._begin_unsubscribe()
        if change is not None:
            await self._run_listener(change)
        await self._finish_unsubscribe()

    async def _begin_unsubscribe(self) -> Change | None:
        self._buffer.mark_consumed()
        owned = sorted(self._subscription.assignment)
        if self.config.enable_auto_commit and self._group is not None:
            await self._commit_quietly(self._subscription.positions(), None)
        if self._subscription.is_of_group and owned and self._rebalances.listener is not None:
            return self._rebalances.revocation(owned)
        return None

    async def _finish_unsubscribe(self) -> None:
        await self._joining.leave()
        self._rebalances.clear()
        self._rebalances.listener = None
        self._buffer.clear()
        self._subscription.unsubscribe()

    def subscription(self) -> set[str]:
        """Return the names of the subscribed topics."""
        return set(self._subscription.topics)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are assigned to this consumer."""
        return self._subscription.assignment

    def _join(self) -> None:
        if self._joining.must_begin():
            self._spawn(self._joining.join())

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
        """Report topics that do not exist or are not authorized, once."""
        await asyncio.gather(*map(self._find_topic, names))
        self._assignment_changed()

    async def _find_topic(self, name: str) -> None:
        timeout_ms = min(UNKNOWN_TOPIC_GRACE_MS, self.config.default_api_timeout_ms)
        try:
            found = await self._cluster.topic(name, timeout_ms=timeout_ms)
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

    async def _poll_with(self, timeout_s: float | None, take: Callable[[], T]) -> T | None:
        """Return the result of `take` as soon as it is not empty, or None after the timeout."""
        taken = self.take_now(take)
        deadline = self._deadline(timeout_s)
        while not taken:
            outcome = await self._ready(deadline)
            if isinstance(outcome, Change):
                await self._run_listener(outcome)
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
        self._buffer.mark_consumed()
        self._progress.polls += 1
        return take()

    async def _ready(self, deadline: float) -> bool | Change:
        """Wait until there may be records.

        Returns:
            True if there may be records, False at the deadline, or a change for which the listener
            must run.
        """
        self._check_open()
        self._progress.is_in_poll = True
        try:
            self._buffer.mark_consumed()
            if self._joining.member is not None:
                self._joining.member.polled()
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

    async def _run_listener(self, change: Change) -> None:
        """Run the listener in this task."""
        try:
            response = self._rebalances.callback(change)()
            if asyncio.iscoroutine(response):
                await response
        finally:
            self._rebalances.finish(change)

    def _raise_failure(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._failures:
            raise self._failures.popleft()
        for state in self._subscription:
            if state.failure is not None:
                raise state.failure

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
                logger.warning("could not commit offsets: %s", error)
        if callback is not None:
            callback(offsets, failure)

    def _committing_member(self) -> GroupMetadata:
        member = self.group_metadata()
        if self._subscription.is_of_group and member.generation_id < 0:
            raise CommitFailed(
                f"this consumer is not a member of group {member.group_id} now: "
                "other members may own its partitions"
            )
        return member

    async def _before_revocation(self, partitions: Sequence[TopicPartition]) -> None:
        self._buffer.mark_consumed()
        if self.config.enable_auto_commit:
            timeout_ms = min(self.config.default_api_timeout_ms, self.config.max_poll_interval_ms)
            await self._commit_quietly(self._subscription.positions(partitions), timeout_ms)

    def _plan_auto_commit(self) -> None:
        if self.config.enable_auto_commit and self.config.group_id:
            pause_s = self.config.auto_commit_interval_ms / 1000
            self._auto_commit_timer = self._loop.call_later(pause_s, self._auto_commit_is_due)

    def _auto_commit_is_due(self) -> None:
        self._is_auto_commit_due = True
        self._wake_poll()

    def _auto_commit(self) -> None:
        if self._is_auto_commit_due:
            self._is_auto_commit_due = False
            self._plan_auto_commit()
            positions = self._subscription.positions()
            if positions:
                self._spawn(self._commit_quietly(positions, None))

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's identity in its group, for `Producer.send_offsets`."""
        self._need_group()
        if self._joining.member is not None:
            return self._joining.member.metadata
        return GroupMetadata(self.config.group_id)

    def _partition_count(self, topic: str) -> int:
        known = self._cluster.metadata.topics.get(topic)
        return 0 if known is None else known.partition_count

    def _wake_poll(self) -> None:
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
        if self._joining.member is not None:
            self._joining.member.metadata_changed()
        for state in self._subscription:
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
            self._wake_poll()

    def _fail_for_good(self, error: ClientError) -> None:
        """Record a failure that every poll raises from now on."""
        self._fatal = error
        self._wake_poll()

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
            raise InvalidConfig("Committing offsets needs a consumer group: set group_id.")
        return self._group

    def _check_open(self) -> None:
        if self._is_closed or not self._is_started:
            what = "is closed" if self._is_closed else "was not started"
            raise ClientClosed(f"the consumer {what}")

    def _timeout_ms(self, timeout_s: float | None) -> int:
        return self.config.default_api_timeout_ms if timeout_s is None else int(timeout_s * 1000)

    def _deadline(self, timeout_s: float | None) -> float:
        return self._loop.time() + (FOREVER_S if timeout_s is None else max(timeout_s, 0.0))
