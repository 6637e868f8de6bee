"""Fetcher, which keeps one fetch in flight per leader while there is room for the data.

A partition is fetched while at most `max.partition.fetch.bytes` of it are buffered, so that the
next response arrives while the user processes the last one. Nothing is fetched while
`fetch.max.bytes` are buffered in total. `pump` checks these conditions and is called after every
change; no task waits for them.

A fetch that omits partitions because enough of their data is buffered must not occupy the
connection for all of `fetch.max.wait.ms`, because they may be needed at any moment. It waits only
briefly, and twice as long each time that nothing arrives.

Errors of a partition: stale metadata is refreshed, and the partition is retried after a pause; an
offset out of range is reset; all other errors are reported to the user.

Deviation: fetch sessions (KIP-227) are not used; each request lists all its partitions."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.cluster import STALE_METADATA, Cluster
from ottla.client.consumer.buffer import RecordBuffer
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.consumer.fetch_request import (
    FetchLimits,
    aborted_transactions,
    note_leader,
    request_for,
)
from ottla.client.consumer.fetched import FetchedPartition
from ottla.client.consumer.subscription import PartitionState, Subscription
from ottla.client.errors import ClientError, KafkaError, error_for

if TYPE_CHECKING:
    from ottla.wire.messages.fetch import FetchResponse, PartitionData

logger = logging.getLogger(__name__)

BRIEF_WAIT_MS = 5
_WAITS = STALE_METADATA | {ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR}

_Requested = dict[TopicPartition, tuple[PartitionState, int, int]]
"""Partition to its state, that state's version, and the requested offset."""


class Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        subscription: Subscription,
        buffer: RecordBuffer,
        on_change: Callable[[], None],
        on_failure: Callable[[ClientError], None],
        on_out_of_range: Callable[[PartitionState], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._limits = FetchLimits(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            partition_max_bytes=config.max_partition_fetch_bytes,
            isolation=config.isolation,
            rack=config.client_rack,
        )
        self._subscription = subscription
        self._buffer = buffer
        self._on_change = on_change
        self._on_failure = on_failure
        self._on_out_of_range = on_out_of_range
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._brief_wait_ms: dict[int, int] = {}
        self._again: asyncio.Handle | None = None
        self._again_at = 0.0
        """Time at which `_again` is due; kept here because uvloop's handles do not expose it."""
        self._is_closed = False
        self.is_wanted: Callable[[PartitionState, dict[TopicPartition, int]], bool] | None = None
        """Priority check: whether to fetch a partition, given the buffered bytes of each."""

    async def close(self) -> None:
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def is_fetching(self, tp: TopicPartition) -> bool:
        return self._cluster.metadata.leader(*tp) in self._under_way

    def pump(self) -> None:
        """Send all fetches that are possible now."""
        if self._is_closed:
            return
        waiting = self._buffer.sizes()
        if sum(waiting.values()) >= max(self._config.fetch_max_bytes, 1):
            return
        now = asyncio.get_running_loop().time()
        wanted: defaultdict[int, list[PartitionState]] = defaultdict(list)
        crowded: set[int] = set()
        for state in self._subscription:
            if not _is_fetchable(state):
                continue
            node = self._node_for(state)
            if node < 0 or state.retry_at > now:
                if state.retry_at <= now:
                    self._back_off([state])
                    self._cluster.request_refresh()
                self._pump_at(state.retry_at)
            elif node in self._under_way:
                continue
            elif self._has_room(state, waiting):
                wanted[node].append(state)
            else:
                crowded.add(node)
        for node, states in wanted.items():
            self._fetch(node, states, node in crowded)

    def _has_room(self, state: PartitionState, waiting: dict[TopicPartition, int]) -> bool:
        if waiting.get(state.tp, 0) > self._config.max_partition_fetch_bytes:
            return False
        return self.is_wanted is None or self.is_wanted(state, waiting)

    def _node_for(self, state: PartitionState) -> int:
        if state.preferred_replica in self._cluster.metadata.nodes:
            return state.preferred_replica
        return self._cluster.metadata.leader(*state.tp)

    def _pump_at(self, when: float) -> None:
        if self._again is None or self._again.cancelled() or self._again_at > when:
            if self._again is not None:
                self._again.cancel()
            self._again_at = when
            self._again = asyncio.get_running_loop().call_at(when, self._pump_again)

    def _pump_again(self) -> None:
        self._again = None
        self.pump()

    # ---------------------------------------------------------------------------------- fetching

    def _fetch(self, node: int, states: list[PartitionState], is_crowded: bool) -> None:
        wait_ms = self._config.fetch_max_wait_ms
        if is_crowded:
            brief = self._brief_wait_ms.get(node, BRIEF_WAIT_MS)
            self._brief_wait_ms[node] = min(2 * brief, wait_ms or BRIEF_WAIT_MS)
            wait_ms = min(brief, wait_ms)
        else:
            self._brief_wait_ms.pop(node, None)
        # Read the offsets now, not when the task first runs: a seek may come in between.
        requested: _Requested = {}
        for state in states:
            assert state.fetch_position is not None
            requested[state.tp] = (state, state.version, state.fetch_position)
        task = asyncio.create_task(self._run(node, requested, wait_ms))
        self._under_way[node] = task
        task.add_done_callback(lambda _: self._done(node))

    def _done(self, node: int) -> None:
        self._under_way.pop(node, None)
        self.pump()

    async def _run(self, node: int, planned: _Requested, wait_ms: int) -> None:
        # Drop partitions whose position changed meanwhile: their data would be discarded, and the
        # next fetch would have to wait for it.
        requested = {tp: each for tp, each in planned.items() if each[0].version == each[1]}
        if not requested:
            return
        states = [state for state, _, _ in requested.values()]
        try:
            offsets = {tp: offset for tp, (_, _, offset) in requested.items()}
            limits = self._limits._replace(max_wait_ms=wait_ms)
            request, max_version = request_for(offsets, limits, self._cluster.metadata)
            response = await self._cluster.call(
                request,
                node=node,
                timeout_ms=self._config.request_timeout_ms + wait_ms,
                max_version=max_version,
            )
            if response.error_code:
                raise error_for(response.error_code)
        except KafkaError as error:
            logger.debug("a fetch from broker %d failed: %s", node, error)
            self._back_off(states)
            for state in states:
                state.preferred_replica = -1
            self._cluster.request_refresh()
            if isinstance(error, ClientError) and error.fatal:
                self._on_failure(error)
            return
        self._process(response, requested)

    def _process(self, response: FetchResponse, requested: _Requested) -> None:
        names = self._cluster.metadata.names_by_id
        arrived = False
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id)
            for entry in topic.partitions:
                known = requested.get(TopicPartition(name or "", entry.partition_index))
                if known is None:
                    continue
                state, version, offset = known
                if state.version != version or self._subscription.get(state.tp) is not state:
                    continue  # the position changed, or the partition was revoked, during the fetch
                if entry.error_code:
                    self._handle_error(state, entry, offset)
                else:
                    arrived |= self._add_records(state, version, entry, offset)
        if arrived:
            self._brief_wait_ms.clear()
            self._on_change()

    def _add_records(
        self, state: PartitionState, version: int, entry: PartitionData, offset: int
    ) -> bool:
        state.high_watermark = entry.high_watermark
        state.last_stable_offset = entry.last_stable_offset
        state.log_start_offset = entry.log_start_offset
        state.leader_epoch = self._cluster.metadata.leader_epoch(*state.tp)
        if entry.preferred_read_replica >= 0 and not entry.records:
            state.preferred_replica = entry.preferred_read_replica
            return False
        if not entry.records:
            return False
        aborted = aborted_transactions(entry, self._config.isolation)
        fetched = FetchedPartition(
            state, version, entry.records, offset, aborted, self._config.check_crcs
        )
        state.fetch_position = fetched.end_offset
        self._buffer.add(fetched)
        return True

    def _handle_error(self, state: PartitionState, entry: PartitionData, offset: int) -> None:
        code, tp = entry.error_code, state.tp
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.preferred_replica >= 0:
                state.preferred_replica = -1  # the follower may lag behind, so ask the leader
            else:
                self._on_out_of_range(state)
            return
        state.preferred_replica = -1
        note_leader(self._cluster, tp, entry)
        if code in _WAITS:
            logger.debug("%s: %s", tp, ErrorCode(code).name)
            self._cluster.request_refresh()
        else:
            self._on_failure(error_for(code, topic=tp.topic, partition=tp.partition))
        self._back_off([state])

    def _back_off(self, states: list[PartitionState]) -> None:
        until = asyncio.get_running_loop().time() + self._config.retry_backoff_ms / 1000
        for state in states:
            state.retry_at = until


def _is_fetchable(state: PartitionState) -> bool:
    if not state.is_known or state.is_paused or state.is_held or state.wants_validation:
        return False
    assert state.fetch_position is not None
    return state.stop_at is None or state.fetch_position < state.stop_at
