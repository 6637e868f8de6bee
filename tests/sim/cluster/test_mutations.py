"""Proof that the simulator can fail: with one rule removed, some world breaks.

If random faults rarely lead to the failure, the test scripts the sequence of events."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.sim.cluster.mutations import (
    MUTATIONS,
    Mutation,
    check_the_id_before_the_markers_are_written,
    fence_before_the_markers_are_written,
    join_too_early,
    never_wait_for_markers,
    trust_what_lost_power,
)
from tests.sim.cluster.oracle import Oracle
from tests.sim.cluster.test_scenarios import KEY, NOBODY, E, bed
from tests.sim.cluster.test_transactions import (
    commit_small_transactions_back_to_back,
    end_before_the_markers_are_written,
    use_a_new_producer_id_at_once,
)
from tests.sim.cluster.world import simulate

SEEDS = 200


@pytest.mark.chaos
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_rule_taken_away_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    for seed in range(SEEDS):
        try:
            simulate(seed)
        except Exception as error:  # any failure counts
            print(f"{mutation.__name__}: seed {seed}: {str(error).splitlines()[0]}")
            return
    pytest.fail(f"{SEEDS} worlds did not notice")


def fall_behind_and_return() -> None:
    """Let a follower return far behind and catch up one batch at a time."""
    with bed(replica_fetch_max_bytes="1", replica_lag_time_max_ms="1000") as world:
        Oracle(world.cluster).watch(KEY.topic, 1)
        behind, leader = world.followers()[0], world.leader()
        world.cluster.machines[behind].kill()
        world.until(lambda: behind not in world.isr())
        for _ in range(20):
            assert world.produce(leader) is E.NONE
        world.cluster.machines[behind].start()
        world.until(lambda: behind in world.isr())
        world.wait(1.0)


def lose_power_everywhere() -> None:
    """Cut the power of all machines at once, so that unsynced data may be lost on all of them."""
    for attempt in range(8):
        with bed(auto_leader_rebalance_enable=str(attempt % 2 == 0).lower()) as world:
            Oracle(world.cluster).watch(KEY.topic, 1)
            for _ in range(3 + attempt):
                assert world.produce(world.leader()) is E.NONE
            for machine in world.cluster.machines.values():
                machine.cut_power()
            for machine in world.cluster.machines.values():
                machine.start()
            world.wait(6.0)
            assert world.leader() == NOBODY, "it is not known who has the most"


@pytest.mark.parametrize(
    ("course", "mutation"),
    [
        (fall_behind_and_return, join_too_early),
        (lose_power_everywhere, trust_what_lost_power),
        (end_before_the_markers_are_written, fence_before_the_markers_are_written),
        (use_a_new_producer_id_at_once, check_the_id_before_the_markers_are_written),
        (commit_small_transactions_back_to_back, never_wait_for_markers),
    ],
    ids=lambda each: each.__name__,
)
def test_a_course_of_events_shows_what_its_rule_is_for(
    course: Callable[[], None], mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    course()
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        course()
