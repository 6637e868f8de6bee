"""A limit on a rate, which is measured over windows like Kafka's (`quota.window.num` windows of
`quota.window.size.seconds`).

    span          the time over which the mean is measured: all windows but the current one
    burst         what may be used at once after a pause: limit × span
    throttle time the time until the mean since the beginning of the use is back at the limit

An amount is recorded even if it exceeds the limit; only then is the client throttled. The part
above the limit is a debt, which is paid at the rate of the limit. When it is paid, the amounts of
the span count as if they had been used evenly, so the client continues at the rate of the limit,
without another burst. A client that does not use its rate earns a burst again.

A client that is throttled for each request cannot send the next one at the very moment when its
debt is paid. Up to a fortieth of the span that passes between them is credited, or the client would
stay below its limit.

    limit 1, span 10:  burst of 10 at 0 s │ waits until 10 s │ 1 per second from then on

Deviations from Kafka
- Kafka forgets a debt with the windows that it was recorded in. A client with requests larger than
  the quota of all windows then exceeds its quota by half; here it keeps it.
- Kafka compares the sum of 11 windows with 10 times the limit, and lets each client exceed it by up
  to a tenth. Here the oldest window counts with the share of it that is within the span.
"""

from __future__ import annotations

from math import floor, inf

CREDITED_SHARE = 1 / 40
"""Share of the span that is credited if the client did not use it, and adds to the burst."""
_ROUNDING = 1 + 1e-9
"""Tolerance for sums of floating-point numbers."""


class Rate:
    """The use of one limit. Times are seconds of one monotonic clock."""

    __slots__ = (
        "__weakref__",
        "_amounts",
        "_credit_s",
        "_finish",
        "_max_throttle_s",
        "_paid_at",
        "_sum",
        "_window",
        "limit",
        "span_s",
        "window_s",
    )

    def __init__(
        self, limit: float, windows: int, window_size_s: float, max_throttle_s: float = inf
    ) -> None:
        """Create a limit that has not been used.

        Args:
            limit: The amount per second.
            windows: Number of windows.
            window_size_s: Length of a window.
            max_throttle_s: Upper bound of throttle times. If it is finite, debts are limited to the
                span.
        """
        self.limit = limit
        self.span_s = max(1, windows - 1) * window_size_s
        self.window_s = window_size_s
        self._credit_s = self.span_s * CREDITED_SHARE
        self._max_throttle_s = max_throttle_s
        self._amounts = [0.0] * (max(1, windows - 1) + 1)
        """Amounts by the number of their window modulo the length of this list."""
        self._sum = 0.0
        self._window = 0
        """Number of the current window."""
        self._finish = -inf
        """Time when everything used so far is paid at the rate of the limit."""
        self._paid_at = -inf
        """Time when the latest debt is paid. The span before it counts as evenly used."""

    def record(self, amount: float, now: float) -> float:
        """Record an amount, and return the throttle time in seconds: 0 within the limit."""
        self._move_to(now)
        amounts = self._amounts
        amounts[self._window % len(amounts)] += amount
        self._sum += amount
        self._finish = max(self._finish, now - self._credit_s) + amount / self.limit
        if self._used(now) <= self.limit * self.span_s * _ROUNDING:
            return 0.0
        if self._max_throttle_s != inf:
            self._finish = min(self._finish, now + self.span_s)
        self._paid_at = self._finish
        self._forget_amounts()
        return self.throttle_s(now)

    def throttle_s(self, now: float) -> float:
        """Return the time until the debt is paid, 0 if there is none."""
        return min(max(0.0, self._paid_at - now), self._max_throttle_s)

    def available(self, now: float) -> float:
        """Return the amount that can be recorded without a debt."""
        self._move_to(now)
        return max(0.0, self.limit * self.span_s - self._used(now))

    def is_idle(self, now: float) -> bool:
        """Return whether a new `Rate` would decide in the same way."""
        self._move_to(now)
        return self._sum <= 0 and now - self._paid_at >= self.span_s

    def _used(self, now: float) -> float:
        """Return the amount that counts at this time, which includes the debt."""
        amounts = self._amounts
        left_span = now / self.window_s - self._window
        recorded = self._sum - amounts[(self._window + 1) % len(amounts)] * left_span
        evenly_used_s = max(0.0, self.span_s - (now - self._paid_at))
        return recorded + self.limit * evenly_used_s

    def _move_to(self, now: float) -> None:
        window = floor(now / self.window_s)
        steps = window - self._window
        if steps <= 0:
            return
        amounts = self._amounts
        if steps >= len(amounts):
            self._forget_amounts()
        else:
            for number in range(self._window + 1, window + 1):
                index = number % len(amounts)
                self._sum -= amounts[index]
                amounts[index] = 0.0
        self._window = window

    def _forget_amounts(self) -> None:
        self._amounts = [0.0] * len(self._amounts)
        self._sum = 0.0
