"""The limits on connections: how many may be open, and how fast new ones may come (KIP-402, 612).

| limit | connections over it |
|---|---|
| `max.connections`, of the broker and of a listener | are closed |
| `max.connections.per.ip`, with overrides | are closed |
| `max.connection.creation.rate`, of the broker and of a listener | wait in order of arrival |
| `connection_creation_rate`, a quota of the address | are closed after the throttle time |

Connections that wait or will be closed are accepted, but not read, and count towards the first two
limits, which therefore bound how many can wait.

If there are several listeners, the broker's own limits do not stop connections to the one for other
brokers, so that clients cannot keep a cluster from replicating. If the broker has too many
connections then, it closes the one of another listener that has been idle for longest.

Deviation: Kafka stops accepting while `max.connections` are open; here, connections over it are
closed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from ottla.broker.connection import Connection
from ottla.broker.connection_rate import UNLIMITED, ConnectionRate
from ottla.broker.held_connections import HeldConnections, Timer
from ottla.broker.quotas import ClientQuotas


class AdmissionLimits(Protocol):
    """The limits, which may change while the server runs."""

    @property
    def max_connections(self) -> int: ...

    @property
    def max_connections_per_ip(self) -> int: ...

    @property
    def max_connections_per_ip_overrides(self) -> Mapping[str, int]: ...

    @property
    def max_connection_creation_rate(self) -> int: ...

    @property
    def max_connections_of_listener(self) -> Mapping[str, int]: ...

    @property
    def max_connection_creation_rate_of_listener(self) -> Mapping[str, int]: ...

    @property
    def protected_listener(self) -> str | None:
        """The listener for other brokers, unless it is the only one."""


class Admission:
    """The open connections, and those that wait."""

    def __init__(
        self,
        limits: Callable[[], AdmissionLimits],
        monotonic: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], Timer],
        quotas: ClientQuotas | None,
    ) -> None:
        """Create an admission without connections.

        Args:
            limits: Returns the present limits.
            monotonic: Source of monotonic time.
            call_later: Calls a function after a number of seconds.
            quotas: The quotas of addresses; None if there are none.
        """
        self.connections: dict[Connection, None] = {}
        self.max_files = UNLIMITED
        """Number of connections for which the limit on open files suffices."""
        self.throttled = 0
        """Number of connections that were closed because of a quota of their address."""
        self._limits = limits
        self._monotonic = monotonic
        self._call_later = call_later
        self._quotas = quotas
        self._of_address: dict[str, int] = {}
        self._of_listener: dict[str, int] = {}
        self._rate = ConnectionRate()
        self._rate_of_listener: dict[str, ConnectionRate] = {}
        self._waiting: dict[str, deque[Connection]] = {}
        """Connections that wait because of a connection rate, by listener."""
        self._refused = HeldConnections[Connection](monotonic, call_later, Connection.abort)
        self._timer: Timer | None = None

    def refusal(self, connection: Connection) -> str | None:
        """Count a new connection, or return the limit that it exceeds."""
        limits, peer, listener = self._limits(), connection.peer, connection.listener
        is_protected = listener == limits.protected_listener
        total = len(self.connections)
        if total >= self.max_files or (total >= limits.max_connections and not is_protected):
            return f"{total} connections are open"
        of_listener = self._of_listener.get(listener, 0)
        if of_listener >= limits.max_connections_of_listener.get(listener, UNLIMITED):
            return f"{of_listener} connections to that listener are open"
        of_address = self._of_address.get(peer, 0)
        if of_address >= limits.max_connections_per_ip_overrides.get(
            peer, limits.max_connections_per_ip
        ):
            return f"{of_address} connections from that address are open"
        if total >= limits.max_connections:
            self._close_least_active(listener)
        self._of_address[peer] = of_address + 1
        self._of_listener[listener] = of_listener + 1
        self.connections[connection] = None
        return None

    def forget(self, connection: Connection) -> bool:
        """Stop to count a connection. Returns whether it was counted."""
        if connection not in self.connections:
            return False
        del self.connections[connection]
        _decrease(self._of_address, connection.peer)
        _decrease(self._of_listener, connection.listener)
        self._refused.forget(connection)
        return True

    def must_wait(self, connection: Connection) -> bool:
        """Return whether an admitted connection must wait. If so, its `admitted` is called later,
        or it is closed."""
        now = self._monotonic()
        of_address = None if self._quotas is None else self._quotas.address_rate(connection.peer)
        if of_address is not None:
            throttle_s = of_address.throttle_s(now)
            if throttle_s > 0:
                self.throttled += 1
                self._refused.hold(connection, now + min(throttle_s, of_address.window_s))
                return True
            of_address.record(1, now)
        waiting = self._waiting.get(connection.listener)
        if not waiting and self._may_enter(connection.listener, now):
            return False
        self._waiting.setdefault(connection.listener, deque()).append(connection)
        if self._timer is None:
            self._admit_waiting_later()
        return True

    def close(self) -> None:
        """Stop the timers."""
        if self._timer is not None:
            self._timer.cancel()
        self._refused.close()

    def _may_enter(self, listener: str, now: float) -> bool:
        """Take a token of the listener and, if its limit applies, of the broker."""
        limits = self._limits()
        limit = limits.max_connection_creation_rate_of_listener.get(listener, UNLIMITED)
        of_listener = None
        if limit < UNLIMITED:
            of_listener = self._rate_of_listener.setdefault(listener, ConnectionRate())
            if not of_listener.try_acquire(limit, now):
                return False
        if listener == limits.protected_listener:
            return True
        if self._rate.try_acquire(limits.max_connection_creation_rate, now):
            return True
        if of_listener is not None:
            of_listener.give_back()
        return False

    def _admit_waiting_later(self) -> None:
        limits = self._limits()
        delays = []
        for listener in self._waiting:
            limit = limits.max_connection_creation_rate_of_listener.get(listener, UNLIMITED)
            of_listener = self._rate_of_listener.get(listener)
            delay = 0.0 if of_listener is None else of_listener.wait_s(limit)
            if listener != limits.protected_listener:
                delay = max(delay, self._rate.wait_s(limits.max_connection_creation_rate))
            delays.append(delay)
        self._timer = self._call_later(min(delays), self._admit_waiting)

    def _admit_waiting(self) -> None:
        self._timer = None
        now = self._monotonic()
        listeners = list(self._waiting)
        for listener in listeners:
            waiting = self._waiting[listener]
            while waiting:
                if waiting[0].is_ending:  # a closed connection uses no token
                    waiting.popleft()
                elif self._may_enter(listener, now):
                    waiting.popleft().admitted()
                else:
                    break
            # The last one becomes the first, so that listeners take turns.
            del self._waiting[listener]
            if waiting:
                self._waiting[listener] = waiting
        if self._waiting and self._timer is None:
            self._admit_waiting_later()

    def _close_least_active(self, listener: str) -> None:
        others = [
            each for each in self.connections if each.listener != listener and not each.is_ending
        ]
        if others:
            min(others, key=lambda each: each.last_active).abort()


def _decrease(counts: dict[str, int], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
