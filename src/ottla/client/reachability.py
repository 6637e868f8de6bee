"""Which brokers cannot be reached now, and when that is worth a line in the log.

A client without a broker waits for up to a minute. It logs the reason at once, so that nobody waits
without knowing why, and again every `REPEAT_S` while it lasts. Records of a client that has not
reached any broker yet have the attribute `is_starting`: tools show them in their own way."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

SLOW_S = 1.5
"""A broker that has not answered for so long is reported before its timeout."""
REPEAT_S = 30.0


class Reachability:
    def __init__(self) -> None:
        self.is_starting = True
        """No broker has answered a Metadata request yet."""
        self._failing: dict[str, str] = {}
        self._logged_at: dict[str, float] = {}

    @property
    def trouble(self) -> str | None:
        """Why brokers cannot be reached now, or None."""
        return "; ".join(self._failing.values()) or None

    def failed(self, address: str, reason: str, now: float) -> None:
        self._failing[address] = reason
        self._log(address, f"{reason}, retrying", now)

    def is_slow(self, address: str, now: float) -> None:
        self._log(address, f"{address} has not answered for {SLOW_S:g} s, still waiting", now)

    def reached(self, address: str) -> None:
        if self._failing.pop(address, None) is not None:
            logger.info("connected to %s", address, extra={"is_starting": self.is_starting})

    def _log(self, address: str, text: str, now: float) -> None:
        if now - self._logged_at.get(address, -REPEAT_S) < REPEAT_S:
            return
        self._logged_at[address] = now
        logger.warning("%s", text, extra={"is_starting": self.is_starting})
