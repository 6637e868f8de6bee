"""Throttling of replication during reassignments (KIP-73).

A replica is throttled if the topic's config lists it (`partition:broker`, or `*` for all) and while
it is not in sync: producers wait for replicas that are in sync. Leader side and follower side each
have one quota for all throttled replicas of a broker. It grows by the rate, up to one second's
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
class Quota:
    """Number of bytes that may be sent now. Times are seconds of one monotonic clock."""

    _remaining_bytes: float = 0.0
    _at: float = float("-inf")
    _rate: float = 0.0

    def is_exhausted(self, rate: float, now: float) -> bool:
        self._refill(rate, now)
        return self._remaining_bytes <= 0

    def record(self, size_bytes: int) -> None:
        self._remaining_bytes -= size_bytes

    def _refill(self, rate: float, now: float) -> None:
        if rate != self._rate or self._at == float("-inf"):
            # A new rate starts with one second's worth; a deficit is kept.
            self._rate, self._remaining_bytes = (
                rate,
                min(self._remaining_bytes, 0.0) if self._remaining_bytes < 0 else rate,
            )
        else:
            refilled = self._remaining_bytes + rate * (now - self._at)
            self._remaining_bytes = min(refilled, rate * BURST_S)
        self._at = now
