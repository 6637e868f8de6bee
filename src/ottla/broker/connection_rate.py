"""The limit on new connections: `max.connection.creation.rate`.

A token bucket holds one second's worth of connections and is refilled at the rate. A burst of that
size passes at once; further connections wait in order of arrival. Kafka leaves them in the backlog
of the listening socket. This broker accepts them but does not read from them, which looks the same
to the client. They count towards the connection limits, which therefore bound how many can wait."""

from __future__ import annotations

UNLIMITED = 2**31 - 1
RECHECK_S = 1.0
"""Longest wait between checks, because a low rate, or 0, may be changed meanwhile."""


class ConnectionRate:
    """Token bucket for new connections."""

    __slots__ = ("_filled_at", "_tokens")

    def __init__(self) -> None:
        self._tokens = float(UNLIMITED)
        self._filled_at = 0.0

    def try_acquire(self, rate: int, now: float) -> bool:
        """Take a token and return True if another connection may come in now."""
        if rate >= UNLIMITED:
            return True
        earned = (now - self._filled_at) * rate
        self._tokens = min(float(rate), self._tokens + earned)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def give_back(self) -> None:
        """Return a token that was not used."""
        self._tokens += 1

    def wait_s(self, rate: int) -> float:
        """Return how long to wait after a refusal before calling `take` again, in seconds."""
        return min(RECHECK_S, max(0.0, 1 - self._tokens) / rate) if rate else RECHECK_S
