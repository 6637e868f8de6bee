"""Throttling of replication during reassignments (KIP-73).

A replica is throttled if the topic's config lists it (`partition:broker`, or `*` for all) and while
it is not in sync: producers wait for replicas that are in sync. Leader side and follower side each
have one allowance for all throttled replicas of a broker. It grows by the rate, up to one second's
worth. Whole batches are sent as long as it is positive, so it may become negative, and must then
grow again first. The average rate is therefore kept, and a batch larger than one second's worth
still gets through.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

ALL_REPLICAS = "*"
BURST_S = 1.0


def is_listed(listed: Collection[str], partition: int, broker: int) -> bool:
    """Return whether a topic's throttled replicas include the replica of a partition."""
    return ALL_REPLICAS in listed or f"{partition}:{broker}" in listed


@dataclass(slots=True)
class Allowance:
    """Number of bytes that may be sent now. Times are seconds of one monotonic clock."""

    _left: float = 0.0
    _at: float = float("-inf")
    _rate: float = 0.0

    def is_used_up(self, rate: float, now: float) -> bool:
        self._grow(rate, now)
        return self._left <= 0

    def use(self, size_bytes: int) -> None:
        self._left -= size_bytes

    def _grow(self, rate: float, now: float) -> None:
        if rate != self._rate or self._at == float("-inf"):
            # A new rate starts with one second's worth; a deficit is kept.
            self._rate, self._left = rate, min(self._left, 0.0) if self._left < 0 else rate
        else:
            grown = self._left + rate * (now - self._at)
            self._left = min(grown, rate * BURST_S)
        self._at = now
