"""A rate limit for log lines that clients or a persistent fault can cause.

A limiter passes `burst` lines about a subject at once and one line per `interval_s` after that. It
counts the lines that it drops, and adds their number to the next line that it passes. A client that
fails again and again therefore does not hide the lines about others, unless `MAX_SUBJECTS` are busy
at the same time: further ones then share one limit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

BURST = 20
INTERVAL_S = 1.0
MAX_SUBJECTS = 16


class _Rate:
    """The lines about one subject that may still be logged."""

    __slots__ = ("at", "suppressed", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.tokens = tokens
        self.at = at
        self.suppressed = 0


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
        self._others = _Rate(burst, monotonic())
        self._subjects: dict[Hashable, _Rate] = {}

    def log(
        self,
        level: int,
        message: str,
        *,
        about: Hashable = None,
        exc_info: BaseException | None = None,
    ) -> None:
        """Log a line, unless too many about the same subject were logged lately.

        Args:
            level: Level of the line.
            message: The line.
            about: Subject with a limit of its own, such as a client and the cause of its failure.
            exc_info: Exception whose traceback is logged.
        """
        now = self._monotonic()
        rate = self._others if about is None else self._rate(about, now)
        rate.tokens = self._tokens(rate, now)
        rate.at = now
        if rate.tokens < 1:
            rate.suppressed += 1
            return
        rate.tokens -= 1
        if rate.suppressed:
            message = f"{message} ({rate.suppressed} similar messages were suppressed)"
            rate.suppressed = 0
        self._logger.log(level, "%s", message, exc_info=exc_info)

    def _tokens(self, rate: _Rate, now: float) -> float:
        return min(self._burst, rate.tokens + (now - rate.at) / self._interval_s)

    def _rate(self, about: Hashable, now: float) -> _Rate:
        known = self._subjects.get(about)
        if known is not None:
            return known
        if len(self._subjects) >= MAX_SUBJECTS:
            self._forget_quiet_subjects(now)
        if len(self._subjects) >= MAX_SUBJECTS:
            return self._others
        new = self._subjects[about] = _Rate(self._burst, now)
        return new

    def _forget_quiet_subjects(self, now: float) -> None:
        """Remove the subjects that have their whole burst again, as new ones have."""
        for about, rate in list(self._subjects.items()):
            if self._tokens(rate, now) >= self._burst:
                self._others.suppressed += rate.suppressed
                del self._subjects[about]
