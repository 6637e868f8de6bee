"""Clock that stands still until a test advances it."""

from __future__ import annotations

START_MS = 1_700_000_000_000


class SimulatedClock:
    def __init__(self, time_ms: int = START_MS) -> None:
        self._now_ms = time_ms
        self._elapsed_ms = 0

    def time_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._elapsed_ms / 1000

    def advance(self, duration_ms: int) -> None:
        """Advance both the wall clock and the monotonic clock."""
        if duration_ms < 0:
            raise ValueError(
                "cannot move time backwards; use set_time to change only the wall clock"
            )
        self._now_ms += duration_ms
        self._elapsed_ms += duration_ms

    def set_time(self, time_ms: int) -> None:
        """Set the wall clock, as an administrator or a time server would. It may go back."""
        self._now_ms = time_ms
