"""Exponential backoff between retries.

The pause doubles with each failure up to a maximum. It is randomized by 20% so that clients that
failed together do not retry together."""

from __future__ import annotations

import random

_SPREAD = 0.2


class Backoff:
    __slots__ = ("_failures", "_first_ms", "_max_ms")

    def __init__(self, first_ms: int, max_ms: int) -> None:
        self._first_ms = first_ms
        self._max_ms = max_ms
        self._failures = 0

    def next_s(self) -> float:
        """Return the seconds to wait after one more failure."""
        pause_ms = min(self._first_ms << min(self._failures, 30), self._max_ms)
        self._failures += 1
        return pause_ms / 1000 * random.uniform(1 - _SPREAD, 1 + _SPREAD)

    def reset(self) -> None:
        self._failures = 0
