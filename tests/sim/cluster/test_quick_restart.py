"""Time without a leader after a broker is killed and restarted at once."""

from __future__ import annotations

import pytest
from tests.sim.cluster.test_scenarios import NOBODY, Bed, E, bed

from ottla.base.metadata import Create
from ottla.metadata import tree
from ottla.metadata.image import NO_CONTROLLER

LEASE_S = 3.0
SESSION_S = 10.0
SESSION = {"broker_lease_ms": "3000", "zookeeper_session_timeout_ms": "10000"}


def seconds_until_it_leads_again(world: Bed, leader: int) -> float:
    began = world.cluster.scheduler.now
    world.cluster.machines[leader].start()
    world.until(lambda: world.leader() != NOBODY and world.produce(world.leader()) is E.NONE)
    return world.cluster.scheduler.now - began


def test_a_killed_broker_that_restarts_at_once_does_not_wait_for_its_own_lease() -> None:
    """The new process holds the directory locks of the killed one, which must therefore be dead."""
    with bed(**SESSION) as world:
        leader = world.leader()
        assert world.produce(leader) is E.NONE
        for _ in range(3):
            world.cluster.machines[leader].kill()
            assert seconds_until_it_leads_again(world, leader) < LEASE_S / 2
            world.until(lambda: len(world.isr()) == 3)
            leader = world.leader()


def test_a_broker_does_not_take_the_place_of_a_process_with_other_directories() -> None:
    """ZooKeeper cannot tell a rebooted machine from a different one, so the former process only
    counts as dead once its lease has expired."""
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


def test_the_place_of_a_killed_controller_does_not_outlive_its_process() -> None:
    """Otherwise the cluster would lose its controller again when ZooKeeper ends the old session."""
    with bed(**SESSION) as world:
        controller = world.broker(1).image.controller_id
        former_epoch = world.broker(1).image.controller_epoch
        other = controller % 3 + 1
        world.cluster.machines[controller].kill()
        world.cluster.machines[controller].start()
        image = world.broker(other).image
        world.until(
            lambda: image.controller_id != NO_CONTROLLER and image.controller_epoch > former_epoch,
            timeout_s=LEASE_S / 2,
        )
        epoch = image.controller_epoch
        world.wait(2 * SESSION_S)
        assert image.controller_epoch == epoch


def test_a_broker_that_was_killed_while_it_shut_down_is_not_passed_over_after_its_restart() -> None:
    with bed(**SESSION) as world:
        leader = world.leader()
        other, machine = leader % 3 + 1, world.cluster.machines[leader]
        draining = Create(tree.draining_path(leader), b"{}", ephemeral=True)
        announced = world.broker(leader).store.txn([], [draining])
        world.cluster.scheduler.run(announced, machine.process)
        world.until(lambda: leader in world.broker(other).image.draining)
        machine.kill()
        machine.start()
        world.until(lambda: leader not in world.broker(other).image.draining, LEASE_S / 2)
