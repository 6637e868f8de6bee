"""Connections that wait for a time of their own: one heap and one timer for all of them.

Connections that are due at the same time follow in the order in which they were held."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

ConnectionT = TypeVar("ConnectionT")
MIN_STALE = 64


class Timer(Protocol):
    """A timer that has been started."""

    def cancel(self) -> None: ...


class HeldConnections(Generic[ConnectionT]):
    """Connections with the times when they are released."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], Timer],
        release: Callable[[ConnectionT], None],
    ) -> None:
        """Create an empty set.

        Args:
            monotonic: Source of monotonic time.
            call_later: Calls a function after a number of seconds.
            release: Called with each connection that is due.
        """
        self._monotonic = monotonic
        self._call_later = call_later
        self._release = release
        self._due: dict[ConnectionT, tuple[float, int]] = {}
        self._heap: list[tuple[float, int]] = []
        """Times and numbers. Those of connections that were closed stay until they are due, or
        until they are the majority."""
        self._connections: dict[int, ConnectionT] = {}
        self._next_number = 0
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._due)

    def hold(self, connection: ConnectionT, until: float) -> None:
        """Hold a connection, or hold it longer. A time before the present one has no effect."""
        present = self._due.get(connection)
        if present is not None:
            if until <= present[0]:
                return
            self.forget(connection)
        entry = self._due[connection] = (until, self._next_number)
        self._connections[entry[1]] = connection
        self._next_number += 1
        heapq.heappush(self._heap, entry)
        self._start_timer()

    def forget(self, connection: ConnectionT) -> None:
        """Drop a connection that was closed."""
        present = self._due.pop(connection, None)
        if present is None:
            return
        del self._connections[present[1]]
        if len(self._heap) > 2 * len(self._due) + MIN_STALE:
            self._heap = list(self._due.values())
            heapq.heapify(self._heap)

    def release_all(self) -> None:
        """Release every connection now."""
        held = list(self._due)
        self.close()
        for connection in held:
            self._release(connection)

    def close(self) -> None:
        """Drop every connection."""
        self._due.clear()
        self._connections.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self) -> None:
        if not self._heap:
            return
        at = self._heap[0][0]
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._call_later(max(0.0, at - self._monotonic()), self._release_due)

    def _release_due(self) -> None:
        self._timer = None
        now = self._monotonic()
        due = []
        while self._heap and self._heap[0][0] <= now:
            _, number = heapq.heappop(self._heap)
            connection = self._connections.pop(number, None)
            if connection is not None:
                del self._due[connection]
                due.append(connection)
        for connection in due:
            self._release(connection)
        self._start_timer()
