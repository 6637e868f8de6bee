"""The simulator can fail: with one rule of replication taken away, some world breaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.sim.cluster.world import simulate

from ottla.broker.replica_fetcher import ReplicaFetcher
from ottla.core.controller import elections
from ottla.core.replication import divergence
from ottla.core.replication.leadership import Leadership

SEEDS = 60


def acknowledge_at_once(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is the leader's own end."""

    def advance(self: Leadership, leader_end: int) -> bool:
        moved = leader_end > self.high_watermark
        self.high_watermark = max(self.high_watermark, leader_end)
        return moved

    patch.setattr(Leadership, "advance", advance)


def let_anybody_lead(patch: pytest.MonkeyPatch) -> None:
    """A replica that is alive leads, in sync or not."""

    def eligible(state: elections.PartitionState, brokers: elections.Brokers) -> list[int]:
        return [replica for replica in reversed(state.replicas) if replica in brokers.alive]

    patch.setattr(elections, "_eligible", eligible)


def never_cut(patch: pytest.MonkeyPatch) -> None:
    """A follower keeps what its leader does not have."""

    async def keep(self: ReplicaFetcher, *_: object) -> None:
        return None

    patch.setattr(ReplicaFetcher, "_truncate", keep)


def never_diverge(patch: pytest.MonkeyPatch) -> None:
    """A leader believes that every follower agrees with it."""
    patch.setattr("ottla.broker.handlers.fetch.diverges", lambda *_: None)
    assert divergence.diverges(5, 2, divergence.EpochEnd(1, 3)) is not None


def join_too_early(patch: pytest.MonkeyPatch) -> None:
    """A follower is in sync as soon as it fetches."""

    def expanded(self: Leadership, follower: int) -> dict[int, int] | None:
        known = self._followers.get(follower)
        if self._pending is not None or known is None or follower in self._committed:
            return None
        return {**self._committed, follower: known.incarnation}

    def advance(self: Leadership, leader_end: int) -> bool:
        ends = [
            known.log_end_offset
            for follower, known in self._followers.items()
            if follower in self._committed and known.log_end_offset >= self.high_watermark
        ]
        least = min([leader_end, *ends])
        moved = least > self.high_watermark
        self.high_watermark = max(least, self.high_watermark)
        return moved

    patch.setattr(Leadership, "expanded", expanded)
    patch.setattr(Leadership, "advance", advance)


@pytest.mark.chaos
@pytest.mark.parametrize(
    "mutation",
    [acknowledge_at_once, let_anybody_lead, never_cut, never_diverge, join_too_early],
    ids=lambda mutation: mutation.__name__,
)
def test_a_rule_taken_away_is_noticed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    for seed in range(SEEDS):
        try:
            simulate(seed)
        except Exception:  # whatever it breaks
            return
    pytest.fail(f"{SEEDS} worlds did not notice")
