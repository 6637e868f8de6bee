"""Tracking of brokers that cannot be reached, and of when to log it.

A client without a broker may wait for a minute. It logs the reason at once, and again every
`REPEAT_S` while the problem lasts. Log records of a client that has not reached any broker yet have
the attribute `is_starting`, so that command-line tools can present them differently."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

SLOW_S = 1.5
"""Time after which a broker that has not responded is reported, well before its timeout."""
REPEAT_S = 30.0


class Reachability:
    def __init__(self) -> None:
        self.is_starting = True
        """True until a broker responds to a Metadata request."""
        self._failing: dict[str, str] = {}
        self._logged_at: dict[str, float] = {}

    @property
    def reason(self) -> str | None:
        """The reason why brokers cannot be reached, or None."""
        return "; ".join(self._failing.values()) or None

    def failed(self, address: str, reason: str, now: float) -> None:
        self._failing[address] = reason
        self._log(address, f"{reason}, retrying", now)

    def is_slow(self, address: str, now: float) -> None:
        self._log(address, f"{address} has not responded for {SLOW_S:g} s, still waiting", now)

    def reached(self, address: str) -> None:
        if self._failing.pop(address, None) is not None:
            logger.info("connected to %s", address, extra={"is_starting": self.is_starting})

    def _log(self, address: str, text: str, now: float) -> None:
        if now - self._logged_at.get(address, -REPEAT_S) < REPEAT_S:
            return
        self._logged_at[address] = now
        logger.warning("%s", text, extra={"is_starting": self.is_starting})
