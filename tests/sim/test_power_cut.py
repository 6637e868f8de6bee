"""Power cuts, flipped bits and full disks, by seed."""

from __future__ import annotations

import pytest
from tests.sim.power_cut import Story

LIVES = 5


def power_cuts(seed: int) -> None:
    story = Story(seed)
    for _ in range(LIVES):
        story.live(story.rng.choice([5, 30, 100, 300]))
        if story.rng.random() < 0.2:
            story.shut_down()
            story.disk = story.disk.power_cut()
            story.reopen()
            assert not story.said, story


@pytest.mark.parametrize("block", range(8))
def test_what_was_flushed_survives_power_cuts_at_any_call(block: int) -> None:
    for seed in range(block * 20, block * 20 + 20):
        power_cuts(seed)


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("block", range(40))
def test_what_was_flushed_survives_many_power_cuts(block: int) -> None:
    for seed in range(10_000 + block * 100, 10_100 + block * 100):
        power_cuts(seed)
