"""Tests of whether a data directory still holds everything that its last incarnation wrote."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from ottla.broker.clock import SystemClock
from ottla.broker.logs import Logs
from ottla.testing.simulation.disk import SimulatedDisk

T = TypeVar("T")


async def at_once(work: Callable[[], T]) -> T:
    return work()


def begun(disk: SimulatedDisk) -> Logs:
    disk.make_directories("/data")
    disk.sync_directory("/")

    async def make() -> Logs:
        return Logs(disk, ["/data"], SystemClock(), at_once)

    logs = asyncio.run(make())
    logs.begin()
    return logs


def test_a_new_directory_vouches_for_nothing() -> None:
    assert not begun(SimulatedDisk()).has_all_writes


def test_after_a_killed_process_nothing_is_lost() -> None:
    disk = SimulatedDisk()
    begun(disk).mark_registered()
    logs = begun(disk.kill())
    assert logs.has_all_writes
    assert not logs.was_clean


def test_after_a_power_cut_something_may_be_lost() -> None:
    disk = SimulatedDisk()
    begun(disk).mark_registered()
    for seed in range(20):
        assert not begun(disk.power_cut(random.Random(seed))).has_all_writes


def test_after_a_clean_shutdown_nothing_is_lost_even_in_another_boot() -> None:
    disk = SimulatedDisk()
    logs = begun(disk)
    logs.mark_registered()
    logs.close()
    assert begun(disk.power_cut(random.Random(1))).has_all_writes


@pytest.mark.parametrize("ends_in_order", [True, False])
def test_a_run_that_did_not_register_proves_nothing(ends_in_order: bool) -> None:
    disk = SimulatedDisk()
    begun(disk).mark_registered()
    disk = disk.power_cut(random.Random(1))
    unknown = begun(disk)  # it never reached its cluster
    if ends_in_order:
        unknown.close()
    logs = begun(disk.kill())
    assert not logs.was_clean
    assert not logs.has_all_writes
