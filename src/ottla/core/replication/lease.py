"""How long a broker may act on its own word, and when the controller may replace it.

A broker commits a write to the store every third of a lease, and holds its lease until the moment
it *sent* that write plus the lease, on its own monotonic clock. It is replaced only a lease and a
quarter after the one who replaces it *observed* the last renewal, on that one's own clock. So, with
clocks that drift by less than a tenth, nobody is replaced who still believes in its lease. All
brokers watch all leases, so that whoever becomes controller need not begin to count then. An
observer that is cut off from the store sees no renewals: it judges nobody while it has no lease of
its own, and counts anew from when it has one again.

A broker without a lease is degraded, not down: see `broker/leases.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

RENEWALS_PER_LEASE = 3
GRACE = 1.25


@dataclass(slots=True)
class Lease:
    """The holder's side."""

    duration_s: float
    _until: float = float("-inf")

    def renewed(self, sent_at: float) -> None:
        """A renewal that was sent then has been committed."""
        self._until = max(self._until, sent_at + self.duration_s)

    def is_held(self, now: float) -> bool:
        return now < self._until

    def remaining_s(self, now: float) -> float:
        return max(0.0, self._until - now)

    @property
    def renew_every_s(self) -> float:
        return self.duration_s / RENEWALS_PER_LEASE


class Observed(NamedTuple):
    at: float
    version: int
    """Of the lease's node. Whoever acts on a lease being over commits under the condition that the
    node still has this version: a renewal that has not been seen yet then prevents it."""


@dataclass(slots=True)
class LeaseWatch:
    """An observer's side: when each broker's last renewal was seen."""

    duration_s: float
    _observed: dict[int, Observed] = field(default_factory=dict)

    def observed(self, broker: int, now: float, version: int) -> None:
        known = self._observed.get(broker)
        if known is None or known.version != version:
            self._observed[broker] = Observed(now, version)

    def released(self, broker: int, version: int) -> None:
        """It was given up: nobody need wait."""
        self._observed[broker] = Observed(float("-inf"), version)

    def begin_anew(self, now: float) -> None:
        """The observer was cut off itself: what it did not see in that time says nothing."""
        for broker, (at, version) in self._observed.items():
            if at > float("-inf"):
                self._observed[broker] = Observed(max(at, now), version)

    def expired(self, now: float) -> dict[int, int]:
        """The brokers whose lease is certainly over, with the version of its node."""
        limit = self.duration_s * GRACE
        return {
            broker: version
            for broker, (at, version) in sorted(self._observed.items())
            if now - at > limit
        }

    def next_expiry(self, now: float) -> float | None:
        """When the next lease is over that is not over yet, if it is not renewed."""
        limit = self.duration_s * GRACE
        coming = [at + limit for at, _ in self._observed.values() if now - at <= limit]
        return min(coming, default=None)
