"""Initial position of each partition: the committed offset, or `auto.offset.reset`.

A single task looks up all partitions that need a position; `wake` starts it. After a change of the
leader, it also checks that the new leader's log contains what was read (KIP-320). If that log was
truncated before the position, the position moves back to where the logs diverge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

from ottla.base.types import TopicPartition
from ottla.client.backoff import Backoff
from ottla.client.cluster import Cluster
from ottla.client.consumer.commits import GroupOffsets
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.offsets import OffsetLookup, leaders_of
from ottla.client.consumer.record import OffsetAndTimestamp
from ottla.client.consumer.subscription import EARLIEST, LATEST, PartitionState, Subscription
from ottla.client.errors import (
    ClientError,
    ConnectionLost,
    KafkaError,
    KafkaTimeout,
    NoOffsetForPartition,
    OffsetOutOfRange,
    UnknownTopic,
    error_for,
)

logger = logging.getLogger(__name__)

Args = TypeVarTuple("Args")

_RESETS = {"earliest": EARLIEST, "latest": LATEST}


class Positions:
    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        subscription: Subscription,
        lookup: OffsetLookup,
        committed: GroupOffsets | None,
        on_change: Callable[[], None],
        on_failure: Callable[[ClientError], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._subscription = subscription
        self._lookup = lookup
        self._committed = committed
        self._on_change = on_change
        self._on_failure = on_failure
        self._reset = _RESETS.get(config.auto_offset_reset.lower())
        self._task: asyncio.Task[None] | None = None
        self.last_failure: KafkaError | None = None
        """Error of the last lookup, or None if it succeeded."""

    def wake(self) -> None:
        if (self._task is None or self._task.done()) and self._unresolved():
            self._task = asyncio.create_task(self._resolve())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _unresolved(self) -> list[PartitionState]:
        return [state for state in self._subscription if state.is_unresolved and not state.is_held]

    def out_of_range(self, state: PartitionState) -> None:
        """Handle a position that the log does not contain."""
        tp, offset = state.tp, state.fetch_position
        if self._reset is None:
            state.fail(OffsetOutOfRange(
                f"offset {offset} of {tp} is out of range and auto.offset.reset is none: "
                "seek to a position",
                topic=tp.topic, partition=tp.partition,
            ))  # fmt: skip
            self._on_change()
            return
        logger.info("%s: offset %s is out of range, resetting to %s", tp, offset,
                    self._config.auto_offset_reset)  # fmt: skip
        state.want_reset(self._reset)
        self.wake()

    def leader_changed(self, state: PartitionState) -> None:
        if state.is_known and state.position_epoch >= 0:
            state.wants_validation = True
            self.wake()

    # ---------------------------------------------------------------------------- lookup task

    async def _resolve(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        patience_s = self._config.default_api_timeout_ms / 1000
        until = loop.time() + patience_s
        while unresolved := self._unresolved():
            failures: list[KafkaError] = []
            await self._resolve_once(unresolved, failures)
            self._on_change()
            self.last_failure = failures[0] if failures else None
            if not failures:
                backoff.reset()
                continue
            is_long = loop.time() >= until
            until = loop.time() + patience_s if is_long else until
            for error in failures:
                logger.debug("could not determine positions: %s", error)
                # The topic may just have been created.
                if not _may_pass(error) or (is_long and isinstance(error, UnknownTopic)):
                    self._on_failure(_as_client_error(error))
            # The leader or its epoch may have changed, and no fetch is in progress that would
            # detect it.
            self._cluster.request_refresh()
            await asyncio.sleep(backoff.next_s())

    async def _resolve_once(self, states: list[PartitionState], failures: list[KafkaError]) -> None:
        """Resolve each partition on its own: one missing leader does not affect the others."""
        uncommitted = [state for state in states if state.wants_committed]
        if uncommitted:
            await _collect_failure(failures, self._from_committed, uncommitted)
        work = [
            _collect_failure(failures, self._validate, state)
            for state in states
            if state.wants_validation
        ]
        to_reset = {state.tp: state for state in states if state.reset is not None}
        if to_reset:
            work.append(_collect_failure(failures, self._look_up, to_reset, failures))
        await asyncio.gather(*work)

    async def _from_committed(self, states: list[PartitionState]) -> None:
        found = {}
        if self._committed is not None:
            found = await self._committed.fetch([state.tp for state in states])
        for state in states:
            if not state.wants_committed:
                continue  # the user called `seek` meanwhile
            tp = state.tp
            offset = found.get(tp)
            if offset is not None:
                state.seek(offset.offset, offset.leader_epoch)
            elif self._reset is not None:
                state.want_reset(self._reset)
            else:
                state.fail(NoOffsetForPartition(
                    f"{tp} has no committed offset and auto.offset.reset is none: "
                    "seek to a position",
                    topic=tp.topic, partition=tp.partition,
                ))  # fmt: skip

    async def _look_up(
        self, states: dict[TopicPartition, PartitionState], failures: list[KafkaError]
    ) -> None:
        leaders, without = await leaders_of(self._cluster, states)
        failures += without
        await asyncio.gather(
            *(
                _collect_failure(failures, self._look_up_at, leader, [states[tp] for tp in tps])
                for leader, tps in leaders.items()
            )
        )

    async def _look_up_at(self, leader: int, states: list[PartitionState]) -> None:
        requested = {state.tp: state.reset for state in states if state.reset is not None}
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        try:
            await self._lookup.list_at_leader(leader, requested, found)
            past_the_end = [tp for tp, offset in found.items() if offset.offset < 0]
            if past_the_end:
                await self._lookup.list_at_leader(
                    leader, dict.fromkeys(past_the_end, LATEST), found
                )
        finally:
            for state in states:
                offset = found.get(state.tp)
                if offset is not None and offset.offset >= 0 and state.reset == requested[state.tp]:
                    state.seek(offset.offset, -1)
            self._on_change()

    async def _validate(self, state: PartitionState) -> None:
        metadata = self._cluster.metadata
        leader, epoch = metadata.leader(*state.tp), metadata.leader_epoch(*state.tp)
        version, position = state.version, state.position
        if leader < 0:
            raise error_for(5, topic=state.tp.topic, partition=state.tp.partition)
        epoch_end = await self._lookup.epoch_end(leader, state.tp, epoch, state.position_epoch)
        if state.version != version or position is None:
            return
        state.wants_validation = False
        if epoch_end.end_offset < 0 or epoch_end.leader_epoch < 0:
            self.out_of_range(state)
        elif epoch_end.end_offset < position:
            logger.warning("%s was truncated to offset %d, before the position %d: moving back",
                           state.tp, epoch_end.end_offset, position)  # fmt: skip
            state.seek(epoch_end.end_offset, epoch_end.leader_epoch)


def _may_pass(error: KafkaError) -> bool:
    return error.retriable or isinstance(error, ConnectionLost | KafkaTimeout)


async def _collect_failure(
    failures: list[KafkaError], do: Callable[[*Args], Awaitable[None]], *args: *Args
) -> None:
    """Await a call and collect its error.

    Takes a function instead of a coroutine, because a coroutine that is cancelled before it
    starts would be reported as never awaited."""
    try:
        await do(*args)
    except KafkaError as error:
        failures.append(error)


def _as_client_error(error: KafkaError) -> ClientError:
    return error if isinstance(error, ClientError) else error_for(error.code, str(error))
