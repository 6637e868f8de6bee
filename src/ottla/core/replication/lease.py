"""How long a broker may act on its own word, and when the controller may replace it.

A broker commits a write to the store every third of a lease, and holds its lease until the moment
it *sent* that write plus the lease, on its own monotonic clock. The controller replaces a broker
only a lease and a quarter after it *observed* the last renewal, on its own clock; a controller that
has just been elected begins to count anew. So, with clocks that drift by less than a tenth, nobody
is replaced who still believes in its lease.

A broker without a lease is degraded, not down: see `broker/leases.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(slots=True)
class LeaseWatch:
    """The controller's side: when each broker's last renewal was observed."""

    duration_s: float
    _observed: dict[int, float] = field(default_factory=dict)

    def elected(self, brokers: list[int], now: float) -> None:
        """Begin to count for everybody: nothing observed by an earlier controller is known."""
        self._observed = dict.fromkeys(brokers, now)

    def observed(self, broker: int, now: float) -> None:
        self._observed[broker] = now

    def gone(self, broker: int) -> None:
        self._observed.pop(broker, None)

    def expired(self, now: float) -> list[int]:
        """The brokers whose lease is certainly over, in the order of their ids."""
        limit = self.duration_s * GRACE
        return sorted(broker for broker, at in self._observed.items() if now - at > limit)

    def next_expiry(self) -> float | None:
        if not self._observed:
            return None
        return min(self._observed.values()) + self.duration_s * GRACE
