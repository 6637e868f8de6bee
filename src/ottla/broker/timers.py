"""All timers of a coordinator in one heap.

Most timers are sessions, which restart with every heartbeat and hardly ever expire. Restarting one
only stores its later deadline; its heap entry stays until it comes up, and is then queued again. A
timer costs two small entries, and the event loop has one wake-up for all of them."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Hashable
from typing import Protocol

from ottla.base.ports import Clock

logger = logging.getLogger(__name__)

TIMERS_PER_WAKEUP = 200
"""Timers fired at once before the event loop does other work."""
SPARE_PLACES = 64
"""Stale heap entries are removed when there are this many more entries than twice the timers."""


class Handle(Protocol):
    def cancel(self) -> object: ...


class _Timer:
    __slots__ = ("action", "deadline", "place")

    def __init__(self, deadline: float, action: Callable[[], None], place: int) -> None:
        self.deadline = deadline
        self.action = action
        self.place = place


class Timers:
    """A set of timers, each with a key."""

    def __init__(
        self,
        clock: Clock,
        call_later: Callable[[float, Callable[[], None]], Handle] | None = None,
    ) -> None:
        self._clock = clock
        self._call_later = call_later or _call_later
        self._timers: dict[Hashable, _Timer] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        """(earliest time, place, key); an entry is stale unless the timer of the key has that
        place."""
        self._places = 0
        self._wake_up: Handle | None = None
        self._wakes_at = 0.0

    def __len__(self) -> int:
        return len(self._timers)

    def start(self, key: Hashable, delay_s: float, action: Callable[[], None]) -> None:
        """Run `action` after the delay. A timer with the same key is restarted."""
        deadline = self._clock.monotonic() + delay_s
        timer = self._timers.get(key)
        if timer is not None and timer.deadline <= deadline:
            timer.deadline = deadline
            timer.action = action
            return
        self._timers[key] = timer = _Timer(deadline, action, 0)
        self._queue(key, timer)
        self._sweep()
        self._arm()

    def cancel(self, key: Hashable) -> None:
        self._timers.pop(key, None)
        self._sweep()

    def cancel_all(self) -> None:
        self._timers.clear()
        self._heap.clear()
        self._disarm()

    def run_due(self) -> None:
        """Run the actions that are due, up to `TIMERS_PER_WAKEUP`."""
        self._disarm()
        now = self._clock.monotonic()
        heap, fired = self._heap, 0
        while heap and heap[0][0] <= now and fired < TIMERS_PER_WAKEUP:
            _, place, key = heapq.heappop(heap)
            timer = self._timers.get(key)
            if timer is None or timer.place != place:
                continue
            if timer.deadline > now:
                self._queue(key, timer)
                continue
            del self._timers[key]
            fired += 1
            try:
                timer.action()
            except Exception:
                logger.exception("The timer for %s failed", key)
        self._arm()

    def _queue(self, key: Hashable, timer: _Timer) -> None:
        self._places += 1
        timer.place = self._places
        heapq.heappush(self._heap, (timer.deadline, timer.place, key))

    def _sweep(self) -> None:
        if len(self._heap) <= 2 * len(self._timers) + SPARE_PLACES:
            return
        self._heap[:] = [
            (time, place, key)
            for time, place, key in self._heap
            if key in self._timers and self._timers[key].place == place
        ]
        heapq.heapify(self._heap)

    def _arm(self) -> None:
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._wake_up is not None:
            if self._wakes_at <= earliest:
                return
            self._wake_up.cancel()
        self._wakes_at = earliest
        delay = max(earliest - self._clock.monotonic(), 0.0)
        self._wake_up = self._call_later(delay, self.run_due)

    def _disarm(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None


def _call_later(delay_s: float, action: Callable[[], None]) -> Handle:
    return asyncio.get_running_loop().call_later(delay_s, action)
