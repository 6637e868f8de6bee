"""Tests of the conditions that make a simulated run repeatable."""

from __future__ import annotations

import gc
import os
import random

from ottla.testing.simulation.cluster import repeatable


class DrawsWhenCollected:
    """An object in a reference cycle that draws a random number when it is collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        random.random()


def test_a_seed_decides_every_draw() -> None:
    def draws() -> tuple[float, bytes]:
        with repeatable(7):
            return random.random(), os.urandom(8)

    assert draws() == draws()


def test_garbage_is_not_collected_inside() -> None:
    def draw(garbage: int) -> float:
        with repeatable(7):
            for _ in range(garbage):
                DrawsWhenCollected()
            return random.random()

    assert draw(garbage=0) == draw(garbage=10 * gc.get_threshold()[0])
    assert gc.isenabled()


def test_garbage_of_an_earlier_run_is_collected_before() -> None:
    with repeatable(7):
        expected = random.random()
    for _ in range(3):
        DrawsWhenCollected()
    with repeatable(7):
        assert random.random() == expected
