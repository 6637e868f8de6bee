"""Higher priorities first: partitions are in ranges, one for each priority (see `client.priority`).

A record of a lower priority is handed out only when no record of a higher one waits: neither here
nor, as far as its leader has said, there. While one waits, partitions of lower priorities are not
fetched either. A partition that cannot be fetched now (no leader, paused) holds nobody up. Pure but
for the clock."""

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
        """0 is the highest. A topic with too few partitions has only that."""
        return _level(tp.partition, self._partition_count(tp.topic), self._levels)

    def order(self, fetched: list[FetchedPartition]) -> list[FetchedPartition]:
        """What may be handed out now, the highest priorities first."""
        first_absent = self._first_absent_level()
        ordered = sorted(fetched, key=lambda each: self.level(each.state.tp))
        return [each for each in ordered if self.level(each.state.tp) <= first_absent]

    def is_wanted(self, state: PartitionState, waiting: dict[TopicPartition, int]) -> bool:
        """Whether to fetch a partition now: not while something of a higher priority waits."""
        level = self.level(state.tp)
        if self._first_absent_level() < level:
            return False
        return not any(
            self.level(tp) < level
            for tp in waiting
            if (other := self._subscription.get(tp)) is not None and not other.is_paused
        )

    def _first_absent_level(self) -> int:
        """The highest priority of which records are known to be at their leader and not here."""
        now = self._now()
        return min(
            (self.level(state.tp) for state in self._subscription if self._is_absent(state, now)),
            default=self._levels,
        )

    def _is_absent(self, state: PartitionState, now: float) -> bool:
        if not state.is_known or state.is_paused or state.is_held or state.retry_at > now:
            return False
        if state.high_watermark < 0:
            return True  # its leader has not said yet
        end = state.last_stable_offset if self._isolation else state.high_watermark
        assert state.fetch_position is not None
        return state.fetch_position < end


@lru_cache(maxsize=4096)
def _level(partition: int, count: int, levels: int) -> int:
    try:
        return priority_of(partition, priority_ranges(count, levels))
    except InvalidConfig:
        return 0
