"""A rate limit for log lines that clients or a persistent fault can cause.

A limiter passes `burst` lines at once and one line per `interval_s` after that. It counts the lines
that it drops, and adds their number to the next line that it passes."""

from __future__ import annotations

import logging
from collections.abc import Callable

BURST = 20
INTERVAL_S = 1.0


class LogLimiter:
    """A logger that drops lines above a given rate."""

    def __init__(
        self,
        logger: logging.Logger,
        monotonic: Callable[[], float],
        *,
        burst: int = BURST,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._burst = burst
        self._interval_s = interval_s
        self._tokens = float(burst)
        self._at = monotonic()
        self._suppressed = 0

    def log(self, level: int, message: str, *, exc_info: BaseException | None = None) -> None:
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) / self._interval_s)
        self._at = now
        if self._tokens < 1:
            self._suppressed += 1
            return
        self._tokens -= 1
        if self._suppressed:
            message = f"{message} ({self._suppressed} similar messages were suppressed)"
            self._suppressed = 0
        self._logger.log(level, "%s", message, exc_info=exc_info)
