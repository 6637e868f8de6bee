"""Broker leases: how long a broker may act as leader, and when the controller may replace it.

A broker commits a write to the store three times per lease. It holds the lease until the time at
which it *sent* the last committed write plus the lease duration, on its own monotonic clock. It is
replaced only after 1.25 lease durations since the replacing broker *observed* the last renewal, on
that broker's own clock. As long as clocks drift by less than a tenth, no broker is replaced that
still considers its lease valid.

All brokers watch all leases, so that a new controller does not have to start counting. A broker
that is cut off from the store sees no renewals: it draws no conclusions while it has no lease
itself, and restarts counting once it has one again.

A broker without a lease is degraded, not down: see `broker/leases.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

RENEWALS_PER_LEASE = 3
GRACE = 1.25


@dataclass(slots=True)
class Lease:
    """A lease from its holder's point of view."""

    duration_s: float
    _until: float = float("-inf")

    def renewed(self, sent_at: float) -> None:
        """Extend the lease after a renewal, sent at `sent_at`, has been committed."""
        self._until = max(self._until, sent_at + self.duration_s)

    def is_held(self, now: float) -> bool:
        return now < self._until

    def remaining_s(self, now: float) -> float:
        return max(0.0, self._until - now)

    @property
    def renew_every_s(self) -> float:
        return self.duration_s / RENEWALS_PER_LEASE


class LeaseObservation(NamedTuple):
    at: float
    version: int
    """Version of the lease's node. A change that relies on the lease having expired is committed
    only if the node still has this version, so that a renewal not observed yet prevents it."""


@dataclass(slots=True)
class LeaseWatch:
    """All leases from an observer's point of view: when each last renewal was observed."""

    duration_s: float
    _observed: dict[int, LeaseObservation] = field(default_factory=dict)

    def observed(self, broker: int, now: float, version: int) -> None:
        """Record the version of a broker's lease node, and the time if the version is new."""
        known = self._observed.get(broker)
        if known is None or known.version != version:
            self._observed[broker] = LeaseObservation(now, version)

    def released(self, broker: int, version: int) -> None:
        """Record that a broker gave up its lease, which therefore counts as expired."""
        self._observed[broker] = LeaseObservation(float("-inf"), version)

    def restart_expiry(self, now: float) -> None:
        """Restart counting after the observer was cut off and may have missed renewals."""
        for broker, (at, version) in self._observed.items():
            if at > float("-inf"):
                self._observed[broker] = LeaseObservation(max(at, now), version)

    def expired(self, now: float) -> dict[int, int]:
        """Return the brokers whose lease has certainly expired, with the version of its node."""
        limit = self.duration_s * GRACE
        return {
            broker: version
            for broker, (at, version) in sorted(self._observed.items())
            if now - at > limit
        }

    def next_expiry(self, now: float) -> float | None:
        """Return the expiry time of the earliest lease that has not expired, or None."""
        limit = self.duration_s * GRACE
        coming = [at + limit for at, _ in self._observed.values() if now - at <= limit]
        return min(coming, default=None)
