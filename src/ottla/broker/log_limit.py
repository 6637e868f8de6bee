"""Log lines that a stranger can cause, but not so many that they fill the disk.

A limiter lets `BURST` lines through at once and one per `INTERVAL_S` after that. What it held back
is counted, and the next line says how much."""

from __future__ import annotations

import logging
from collections.abc import Callable

BURST = 20
INTERVAL_S = 1.0


class LogLimiter:
    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._tokens = float(BURST)
        self._at = monotonic()
        self._held_back = 0

    def log(self, level: int, message: str, *, exc_info: BaseException | None = None) -> None:
        now = self._monotonic()
        self._tokens = min(BURST, self._tokens + (now - self._at) / INTERVAL_S)
        self._at = now
        if self._tokens < 1:
            self._held_back += 1
            return
        self._tokens -= 1
        if self._held_back:
            message = f"{message} ({self._held_back} lines like this were left out)"
            self._held_back = 0
        self._logger.log(level, "%s", message, exc_info=exc_info)
