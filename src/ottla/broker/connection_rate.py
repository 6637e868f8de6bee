"""How fast connections are let in: `max.connection.creation.rate`.

A bucket holds one second's worth of connections and is filled again at the rate, so a burst of that
size passes at once, and what comes faster waits for its turn, in the order of its arrival. Kafka
leaves such peers in the backlog of the listening socket; here they are accepted, and not read from.
To them it is the same. They count as connections, so how many may wait is bounded by what bounds
those."""

from __future__ import annotations

UNLIMITED = 2**31 - 1
RECHECK_S = 1.0
"""A rate that is low, or 0, may be changed while someone waits."""


class ConnectionRate:
    __slots__ = ("_filled_at", "_tokens")

    def __init__(self) -> None:
        self._tokens = float(UNLIMITED)
        self._filled_at = 0.0

    def take(self, rate: int, now: float) -> bool:
        """Whether one more connection may come in now."""
        if rate >= UNLIMITED:
            return True
        earned = (now - self._filled_at) * rate
        self._tokens = min(float(rate), self._tokens + earned)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def wait_s(self, rate: int) -> float:
        """How long until it is worth asking again, after a refusal."""
        return min(RECHECK_S, (1 - self._tokens) / rate) if rate else RECHECK_S
