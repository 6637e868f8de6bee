"""Finds where to begin: what the group has committed, else where `auto.offset.reset` says.

One task at a time looks up all partitions that want a position; `wake` starts it when there are
any. After a change of leader it also asks whether the log still has what was read (KIP-320): if the
new leader's log ends earlier, the position goes back to where the two part ways."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.client.backoff import Backoff
from ottla.client.cluster import Cluster
from ottla.client.consumer.commits import GroupOffsets
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.offsets import OffsetLookup
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
        """The log has nothing at the position any more, or not yet."""
        tp, offset = state.tp, state.fetch_position
        if self._reset is None:
            state.fail(OffsetOutOfRange(
                f"{tp} has no offset {offset}, and auto.offset.reset is none: seek",
                topic=tp.topic, partition=tp.partition,
            ))  # fmt: skip
            self._on_change()
            return
        logger.info("%s has no offset %s; going to the %s", tp, offset,
                    self._config.auto_offset_reset)  # fmt: skip
        state.want_reset(self._reset)
        self.wake()

    def leader_changed(self, state: PartitionState) -> None:
        if state.is_known and state.position_epoch >= 0:
            state.wants_validation = True
            self.wake()

    # ------------------------------------------------------------------------------- the task

    async def _resolve(self) -> None:
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        while unresolved := self._unresolved():
            try:
                await self._resolve_once(unresolved)
            except KafkaError as error:
                passing = error.retriable or isinstance(error, ConnectionLost | KafkaTimeout)
                logger.debug("positions could not be found: %s", error)
                if not passing or isinstance(error, UnknownTopic):
                    self._on_failure(_as_client_error(error))
                await asyncio.sleep(backoff.next_s())
            else:
                backoff.reset()
                self._on_change()

    async def _resolve_once(self, states: list[PartitionState]) -> None:
        uncommitted = [state for state in states if state.wants_committed]
        if uncommitted:
            await self._from_committed(uncommitted)
        wanted = {state.tp: state.reset for state in states if state.reset is not None}
        if wanted:
            await self._look_up({state.tp: state for state in states if state.tp in wanted})
        for state in states:
            if state.wants_validation:
                await self._validate(state)

    async def _from_committed(self, states: list[PartitionState]) -> None:
        found = {}
        if self._committed is not None:
            found = await self._committed.fetch([state.tp for state in states])
        for state in states:
            if not state.wants_committed:
                continue  # sought meanwhile
            tp = state.tp
            offset = found.get(tp)
            if offset is not None:
                state.seek(offset.offset, offset.leader_epoch)
            elif self._reset is not None:
                state.want_reset(self._reset)
            else:
                state.fail(NoOffsetForPartition(
                    f"nothing is committed for {tp}, and auto.offset.reset is none: seek",
                    topic=tp.topic, partition=tp.partition,
                ))  # fmt: skip

    async def _look_up(self, states: dict[object, PartitionState]) -> None:
        asked = {state.tp: state.reset for state in states.values() if state.reset is not None}
        found = await self._lookup.list(asked)
        past_the_end = [tp for tp, offset in found.items() if offset.offset < 0]
        if past_the_end:
            found |= await self._lookup.list(dict.fromkeys(past_the_end, LATEST))
        for tp, offset in found.items():
            state = states[tp]
            if state.reset == asked[tp]:
                state.seek(offset.offset, -1)

    async def _validate(self, state: PartitionState) -> None:
        metadata = self._cluster.metadata
        leader, epoch = metadata.leader(*state.tp), metadata.leader_epoch(*state.tp)
        version, position = state.version, state.position
        if leader < 0:
            raise error_for(5, topic=state.tp.topic, partition=state.tp.partition)
        told = await self._lookup.epoch_end(leader, state.tp, epoch, state.position_epoch)
        if state.version != version or position is None:
            return
        state.wants_validation = False
        if told.end_offset < 0 or told.leader_epoch < 0:
            self.out_of_range(state)
        elif told.end_offset < position:
            logger.warning("%s was cut at offset %d, before our %d; going back",
                           state.tp, told.end_offset, position)  # fmt: skip
            state.seek(told.end_offset, told.leader_epoch)


def _as_client_error(error: KafkaError) -> ClientError:
    return error if isinstance(error, ClientError) else error_for(error.code, str(error))
