"""The Clock port, implemented with the system clocks."""

from __future__ import annotations

import time


class SystemClock:
    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
