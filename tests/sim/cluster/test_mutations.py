"""The simulator can fail: with one rule of replication taken away, some world breaks."""

from __future__ import annotations

import pytest
from tests.sim.cluster.mutations import MUTATIONS, Mutation
from tests.sim.cluster.world import simulate

SEEDS = 200
QUICK: dict[str, int] = {}
"""Mutation -> a seed that notices it, for those whose world is short."""


@pytest.mark.chaos
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_rule_taken_away_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    for seed in range(SEEDS):
        try:
            simulate(seed)
        except Exception as error:  # whatever it breaks
            print(f"{mutation.__name__}: seed {seed}: {str(error).splitlines()[0]}")
            return
    pytest.fail(f"{SEEDS} worlds did not notice")
