"""A broker that is killed and restarted at once: how long its partitions have no leader."""

from __future__ import annotations

import pytest
from tests.sim.cluster.test_scenarios import NOBODY, Bed, E, bed

LEASE_S = 3.0
SESSION = {"broker_lease_ms": "3000", "zookeeper_session_timeout_ms": "10000"}


def seconds_until_it_leads_again(world: Bed, leader: int) -> float:
    began = world.cluster.scheduler.now
    world.cluster.machines[leader].start()
    world.until(lambda: world.leader() != NOBODY and world.produce(world.leader()) is E.NONE)
    return world.cluster.scheduler.now - began


def test_a_killed_broker_that_restarts_at_once_does_not_wait_for_its_own_lease() -> None:
    """It has locked the directories that the killed process had locked, so that one is dead."""
    with bed(**SESSION) as world:
        leader = world.leader()
        assert world.produce(leader) is E.NONE
        for _ in range(3):
            world.cluster.machines[leader].kill()
            assert seconds_until_it_leads_again(world, leader) < LEASE_S / 2
            world.until(lambda: len(world.isr()) == 3)
            leader = world.leader()


def test_a_broker_does_not_take_the_place_of_a_process_with_other_directories() -> None:
    """A machine that was booted again is another one for all that ZooKeeper knows: the former
    process is dead when its lease has expired."""
    with bed(**SESSION) as world:
        leader = world.leader()
        assert world.produce(leader) is E.NONE
        world.cluster.machines[leader].cut_power()
        assert seconds_until_it_leads_again(world, leader) > LEASE_S


def test_a_broker_without_a_boot_id_waits_for_the_lease_of_its_former_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bed(**SESSION) as world:
        leader = world.leader()
        machine = world.cluster.machines[leader]
        machine.kill()
        monkeypatch.setattr(machine.disk, "boot_id", lambda: "")
        assert seconds_until_it_leads_again(world, leader) > LEASE_S / 2
