"""How many bytes a second replicas that are being moved may take (KIP-73).

A replica is throttled if its topic lists it (`partition:broker`, or `*` for all), and while it is
not in sync: those in sync are what writers wait for. On both sides there is one allowance for all
throttled replicas of a broker. It grows by the rate, up to a second's worth; records are sent as
long as there is any left, whole batches of them, so that it may fall below zero, and then it has to
grow again first. So the rate is kept on average, and a batch that is larger than a second's worth
still gets through."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

ALL_REPLICAS = "*"
BURST_S = 1.0


def is_listed(listed: Collection[str], partition: int, broker: int) -> bool:
    return ALL_REPLICAS in listed or f"{partition}:{broker}" in listed


@dataclass(slots=True)
class Allowance:
    """Times are seconds of one monotonic clock."""

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
            # Another rate begins with what it allows now; a debt stays.
            self._rate, self._left = rate, min(self._left, 0.0) if self._left < 0 else rate
        else:
            grown = self._left + rate * (now - self._at)
            self._left = min(grown, rate * BURST_S)
        self._at = now
