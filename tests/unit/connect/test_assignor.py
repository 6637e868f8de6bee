"""Tests of assigning connectors and tasks to workers over rebalances, without a real group."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.distributed.assignor import Assignments, LeaderState, assign
from ottla.connect.states import TaskId

Owned = dict[str, frozenset[TaskId]]


def units(count: int) -> frozenset[TaskId]:
    """Return `count` connectors with one task each."""
    return frozenset(TaskId(f"c{number}", task) for number in range(count) for task in (-1, 0))


def after(owned: Mapping[str, frozenset[TaskId]], shares: Assignments) -> Owned:
    return {
        member: (units - shares.revoked[member]) | shares.assigned[member]
        for member, units in owned.items()
    }


def settle(owned: Owned, wanted: frozenset[TaskId], memory: LeaderState, now_ms: int = 0) -> Owned:
    """Rebalance until no member has anything revoked."""
    for _ in range(10):
        shares = assign(owned, wanted, memory, now_ms, 0)
        owned, memory = after(owned, shares), shares.state
        if not any(shares.revoked.values()):
            return owned
    raise AssertionError("it does not settle")


def test_work_is_shared_out_evenly_connectors_and_tasks_apart() -> None:
    owned = settle({"a": frozenset(), "b": frozenset(), "c": frozenset()}, units(6), LeaderState())
    for each in owned.values():
        assert sum(unit.task == -1 for unit in each) == 2
        assert sum(unit.task == 0 for unit in each) == 2


def test_a_new_member_gets_its_share_and_kept_tasks_are_not_stopped() -> None:
    owned = settle({"a": frozenset()}, units(4), LeaderState())
    shares = assign({**owned, "b": frozenset()}, units(4), LeaderState(), 0, 0)
    assert len(shares.revoked["a"]) == 4
    assert not shares.assigned["b"], "it is still being stopped elsewhere"
    later = settle({**owned, "b": frozenset()}, units(4), LeaderState())
    assert later["a"] < owned["a"]
    assert {len(later["a"]), len(later["b"])} == {4}


def test_a_dead_workers_work_waits_for_it_and_is_then_given_to_others() -> None:
    owned: Owned = {"a": frozenset(), "b": frozenset()}
    first = assign(owned, units(4), LeaderState(), 0, 5_000)
    owned = after(owned, first)
    waiting = assign({"a": owned["a"]}, units(4), first.state, 1_000, 5_000)
    assert (waiting.delay_ms, waiting.assigned["a"]) == (5_000, frozenset())
    still = assign({"a": owned["a"]}, units(4), waiting.state, 4_000, 5_000)
    assert still.delay_ms == 2_000
    over = assign({"a": owned["a"]}, units(4), still.state, 6_000, 5_000)
    assert (over.delay_ms, over.assigned["a"]) == (0, owned["b"])


def test_a_worker_that_comes_back_in_time_gets_its_work_at_once() -> None:
    owned: Owned = {"a": frozenset(), "b": frozenset()}
    first = assign(owned, units(4), LeaderState(), 0, 5_000)
    owned = after(owned, first)
    waiting = assign({"a": owned["a"]}, units(4), first.state, 1_000, 5_000)
    back = assign({"a": owned["a"], "b2": frozenset()}, units(4), waiting.state, 2_000, 5_000)
    assert back.assigned == {"a": frozenset(), "b2": owned["b"]}


def test_what_two_have_is_taken_from_one_of_them() -> None:
    both = frozenset({TaskId("c0", 0)})
    shares = assign({"a": both, "b": both}, units(1), LeaderState(), 0, 0)
    assert (shares.revoked["a"], shares.revoked["b"]) == (frozenset(), both)


def test_what_is_deleted_is_given_back() -> None:
    gone = TaskId("gone", 0)
    shares = assign({"a": frozenset({gone})}, frozenset(), LeaderState(), 0, 0)
    assert shares.revoked["a"] == {gone}


@given(
    st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=5),
    st.integers(0, 8),
    st.integers(0, 5_000),
)
def test_every_unit_ends_with_exactly_one_worker(
    claims: list[set[int]], count: int, delay_ms: int
) -> None:
    all_units = sorted(units(8))
    owned = {f"m{n}": frozenset(all_units[each] for each in has) for n, has in enumerate(claims)}
    settled = settle(owned, units(count), LeaderState(), delay_ms)
    placed = [unit for has in settled.values() for unit in has]
    assert sorted(placed) == sorted(units(count))
    for kind in (True, False):
        loads = [sum((unit.task == -1) is kind for unit in has) for has in settled.values()]
        assert max(loads) - min(loads) <= 1
