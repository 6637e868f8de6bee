"""Whole clusters under random faults. The seed alone is enough to replay a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sim.cluster.oracle import Batch
from tests.sim.cluster.world import TOPIC, simulate

from ottla.base.types import TopicPartition

SEEDS_PER_BLOCK = 25


@pytest.mark.parametrize("seed", range(4))  # `make test` runs hundreds more: sweep.py
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    simulate(seed, faults=6)


def test_a_member_that_waits_for_a_lost_answer_catches_up() -> None:
    simulate(9599)  # the follower is behind but still in the ISR after the cluster has healed


def outcome_of(seed: int) -> tuple[int, float, list[str], dict[int, Batch]]:
    world = simulate(seed, faults=4)
    scheduler = world.cluster.scheduler
    history = world.oracle.history(TopicPartition(TOPIC, 0))
    return scheduler.steps, scheduler.now, world.story, history.committed


def test_a_seed_gives_the_same_run_again() -> None:
    """In a process of its own: threads of other tests would draw random numbers meanwhile."""
    program = f"from {__name__} import outcome_of as run; assert run(3) == run(3)"
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()


@pytest.mark.skipif("SEED" not in os.environ, reason="give the seed to replay: make sim SEED=…")
def test_replay() -> None:
    simulate(int(os.environ["SEED"]), faults=int(os.environ.get("FAULTS", "12")))


@pytest.mark.chaos
@pytest.mark.parametrize("block", range(80))
def test_nothing_acknowledged_is_lost_in_many_worlds(block: int) -> None:
    for seed in range(1_000 + block * SEEDS_PER_BLOCK, 1_000 + (block + 1) * SEEDS_PER_BLOCK):
        simulate(seed)
