"""Tests of partition reassignments: begin, complete, cancel, and invalid requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.controller.cluster import Cluster, broker

from ottla.base.cluster import PartitionState
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.core.controller.elections import Brokers
from ottla.core.controller.reassignment import (
    ReassignmentRequest,
    begun,
    cancelled,
    completed,
    decide_reassignments,
)

IDS = (1, 2, 3, 4, 5)
ALL = Brokers({id: broker(id) for id in IDS}, set(IDS), set(IDS))
ON_123 = PartitionState(1, 5, (1, 2, 3), (1, 2, 3), isr_incarnations=(0, 0, 0))
KEY = TopicPartition("t", 0)


def joined(state: PartitionState, *brokers: int) -> PartitionState:
    isr = state.isr + brokers
    return state._replace(isr=isr, isr_incarnations=(0,) * len(isr))


def test_replicas_are_added_before_others_go() -> None:
    moving = begun(ON_123, (4, 2, 3), ALL)
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 2, 3, 1), (4,), (1,))
    assert (moving.leader, moving.leader_epoch, moving.isr) == (1, 5, (1, 2, 3))
    assert completed(moving, ALL) is None
    done = completed(joined(moving, 4), ALL)
    assert done is not None
    assert (done.replicas, done.adding, done.removing) == ((4, 2, 3), (), ())
    assert (done.leader, done.leader_epoch, set(done.isr)) == (4, 6, {2, 3, 4})


def test_a_leader_that_stays_keeps_its_epoch() -> None:
    done = completed(joined(begun(ON_123, (1, 4), ALL), 4), ALL)
    assert done is not None
    assert (done.leader, done.leader_epoch, done.isr) == (1, 5, (1, 4))


@pytest.mark.parametrize("target", [(3, 2, 1), (2,), (1, 3)])
def test_a_reassignment_without_new_replicas_is_complete_at_once(target: tuple[int, ...]) -> None:
    done = begun(ON_123, target, ALL)
    assert (done.replicas, done.adding, done.removing) == (target, (), ())
    assert done.leader in target


def test_it_is_not_complete_while_no_target_replica_can_lead() -> None:
    moving = joined(begun(ON_123, (4, 5), ALL), 4, 5)
    dead = Brokers(ALL.registrations, {1, 2, 3}, {1, 2, 3})
    assert completed(moving, dead) is None
    assert completed(moving, ALL) is not None


def test_cancelling_goes_back() -> None:
    moving = joined(begun(ON_123, (4, 5), ALL), 4)
    back = cancelled(moving, ALL)
    assert (set(back.replicas), back.adding, back.removing) == ({1, 2, 3}, (), ())
    assert (back.leader, back.isr) == (1, (1, 2, 3))


def test_cancelling_takes_leadership_from_one_that_was_added() -> None:
    moving = joined(begun(ON_123, (4, 5), ALL), 4)._replace(leader=4)
    back = cancelled(moving, ALL)
    assert (back.leader, back.leader_epoch) == (1, 6)


def test_another_target_replaces_the_former() -> None:
    moving = begun(begun(ON_123, (4, 2, 3), ALL), (5, 2, 3), ALL)
    assert (moving.replicas, moving.adding, moving.removing) == ((5, 2, 3, 1), (5,), (1,))


@pytest.mark.parametrize(
    ("key", "target", "code"),
    [
        (TopicPartition("no", 0), [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TopicPartition("t", 9), [1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (KEY, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (KEY, [1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (KEY, [1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (KEY, [-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (KEY, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_is_refused(key: TopicPartition, target: list[int] | None, code: ErrorCode) -> None:
    view = Cluster(*ALL.registrations.values())
    view.add("t", (1, 2, 3))
    (decision,) = decide_reassignments(view, ALL, [ReassignmentRequest(key, target)])
    assert decision.error is not None
    assert decision.error.code == code


def test_the_number_of_replicas_can_be_kept() -> None:
    view = Cluster(*ALL.registrations.values())
    view.add("t", (1, 2, 3))
    for target, code in (((4, 5), ErrorCode.INVALID_REPLICATION_FACTOR), ((4, 5, 1), None)):
        (decision,) = decide_reassignments(
            view, ALL, [ReassignmentRequest(KEY, target)], may_change_factor=False
        )
        assert (None if decision.error is None else decision.error.code) == code


_targets = st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True).map(tuple)


@given(st.lists(st.one_of(_targets, st.integers(1, 5)), max_size=12))
def test_there_is_always_a_member_that_was_one_before(steps: list[object]) -> None:
    """Consecutive states share an ISR member, whatever is requested and whichever replica joins.

    The leader is always in the ISR, and the ISR is part of the replicas."""
    state = ON_123
    for step in steps:
        if isinstance(step, tuple):
            new = begun(state, step, ALL)
        elif step in state.replicas and step not in state.isr:
            state = joined(state, step)  # type: ignore[arg-type]
            new = completed(state, ALL) or state
        else:
            continue
        assert new.leader in new.isr
        assert set(new.isr) <= set(new.replicas)
        assert set(new.isr) & set(state.isr)
        assert new.leader_epoch >= state.leader_epoch
        if new.leader != state.leader:
            assert new.leader_epoch > state.leader_epoch
        state = new
