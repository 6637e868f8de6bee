"""Order of consumption by priority. Each priority has a range of partitions (`client.priority`).

A record is returned only when no record of a higher priority is waiting, either in the buffer or,
according to the last fetch response, on the leader. Until then, partitions of lower priorities are
not fetched either. A partition that cannot be fetched now (no leader, or paused) does not hold back
the others. This module does no I/O and only reads the clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ottla.base.types import TopicPartition
from ottla.client.consumer.fetched import FetchedPartition
from ottla.client.consumer.subscription import PartitionState, Subscription
from ottla.client.errors import InvalidConfig
from ottla.client.priority import priority_of, priority_ranges


class Priorities:
    def __init__(
        self,
        levels: int,
        subscription: Subscription,
        partition_count: Callable[[str], int],
        now: Callable[[], float],
        isolation: int,
    ) -> None:
        self._levels = levels
        self._subscription = subscription
        self._partition_count = partition_count
        self._now = now
        self._isolation = isolation

    def level(self, tp: TopicPartition) -> int:
        """Return the priority of a partition, 0 being the highest.

        In a topic with fewer partitions than priorities, all partitions have the highest."""
        return _level(tp.partition, self._partition_count(tp.topic), self._levels)

    def order(self, fetched: list[FetchedPartition]) -> list[FetchedPartition]:
        """Return the data that may be consumed now, highest priority first."""
        first_absent = self._first_absent_level()
        ordered = sorted(fetched, key=lambda each: self.level(each.state.tp))
        return [each for each in ordered if self.level(each.state.tp) <= first_absent]

    def is_wanted(self, state: PartitionState, waiting: dict[TopicPartition, int]) -> bool:
        """Return whether to fetch a partition now: not while a higher priority waits."""
        level = self.level(state.tp)
        if self._first_absent_level() < level:
            return False
        return not any(
            self.level(tp) < level
            for tp in waiting
            if (other := self._subscription.get(tp)) is not None and not other.is_paused
        )

    def _first_absent_level(self) -> int:
        """Return the highest priority that has records on a leader which are not fetched yet."""
        now = self._now()
        return min(
            (self.level(state.tp) for state in self._subscription if self._is_absent(state, now)),
            default=self._levels,
        )

    def _is_absent(self, state: PartitionState, now: float) -> bool:
        if not state.is_known or state.is_paused or state.is_held or state.retry_at > now:
            return False
        if state.high_watermark < 0:
            return True  # not fetched yet, so there may be records
        end = state.last_stable_offset if self._isolation else state.high_watermark
        assert state.fetch_position is not None
        return state.fetch_position < end


@lru_cache(maxsize=4096)
def _level(partition: int, count: int, levels: int) -> int:
    try:
        return priority_of(partition, priority_ranges(count, levels))
    except InvalidConfig:
        return 0
