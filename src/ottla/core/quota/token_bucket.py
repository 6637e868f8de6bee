"""The limit on changes of partitions, `controller_mutation_rate` (KIP-599).

The bucket holds the tokens of all `controller.quota.window.num` windows of
`controller.quota.window.size.seconds`, and begins full. A request may take more tokens than there
are, so that one for many partitions succeeds, too. The next one is refused until the bucket is not
negative any more."""

from __future__ import annotations

from math import inf


class TokenBucket:
    """Tokens of one limit. Times are seconds of one monotonic clock."""

    __slots__ = ("__weakref__", "_burst", "_filled_at", "_tokens", "limit")

    def __init__(self, limit: float, windows: int, window_size_s: float) -> None:
        """Create a full bucket.

        Args:
            limit: Tokens per second.
            windows: Number of windows.
            window_size_s: Length of a window.
        """
        self.limit = limit
        self._burst = limit * windows * window_size_s
        self._tokens = self._burst
        self._filled_at = -inf

    def throttle_s(self, now: float) -> float:
        """Return the time until tokens may be taken again, 0 if they may be taken now."""
        self._fill(now)
        return max(0.0, -self._tokens / self.limit)

    def take(self, tokens: float, now: float) -> None:
        """Take tokens, even if there are not enough."""
        self._fill(now)
        self._tokens -= tokens

    def is_idle(self, now: float) -> bool:
        """Return whether the bucket is full."""
        self._fill(now)
        return self._tokens >= self._burst

    def _fill(self, now: float) -> None:
        if now > self._filled_at:
            if self._filled_at != -inf:
                earned = (now - self._filled_at) * self.limit
                self._tokens = min(self._burst, self._tokens + earned)
            self._filled_at = now
