"""Tests of every row of the table in core/controller/elections.py, and of requested elections."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.core.controller.cluster import Cluster, broker

from ottla.base.cluster import NO_LEADER, ElectionType, PartitionState
from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.core.controller.elect_leaders import decide_elections
from ottla.core.controller.elections import Brokers, elect, prefer_leader

IN_5 = PartitionState(1, 5, (1, 2, 3), (1, 2, 3), isr_incarnations=(0, 0, 0))


def brokers(
    *alive: int,
    leasing: tuple[int, ...] | None = None,
    draining: tuple[int, ...] = (),
    crashed: tuple[int, ...] = (),
    restarted: tuple[int, ...] = (),
) -> Brokers:
    """Return brokers 1 to 3 in the given states.

    `crashed` brokers are alive again in incarnation 1 after an unclean shutdown; `restarted` ones
    are alive in incarnation 1 after a clean shutdown."""
    known = {id: broker(id) for id in (1, 2, 3)}
    for id in crashed:
        known[id] = replace(known[id], incarnation=1, clean_from=1)
    for id in restarted:
        known[id] = replace(known[id], incarnation=1, clean_from=0)
    there = {*alive, *crashed, *restarted}
    return Brokers(known, there if leasing is None else set(leasing), there, frozenset(draining))


def never() -> bool:
    return False


def always() -> bool:
    return True


@pytest.mark.parametrize(
    ("seen", "leader", "isr"),
    [
        pytest.param(brokers(2, 3), 2, (2, 3), id="the first that is eligible leads"),
        pytest.param(brokers(3), 3, (3,), id="the only one that is eligible leads"),
        pytest.param(brokers(1, 2, 3, draining=(1,)), 2, (1, 2, 3), id="a drained leader goes"),
        pytest.param(brokers(2, 3, draining=(2,)), 3, (2, 3), id="one being drained leads last"),
        pytest.param(
            brokers(2, 3, restarted=(1,)), 1, (1, 2, 3), id="a clean restart loses nothing"
        ),
        pytest.param(brokers(2, crashed=(1,)), 2, (2,), id="who crashed is not eligible"),
        pytest.param(brokers(), NO_LEADER, (1, 2, 3), id="nobody: the ISR is kept"),
        pytest.param(brokers(crashed=(1, 2, 3)), NO_LEADER, (1, 2, 3), id="all crashed: nobody"),
    ],
)
def test_an_election_begins_a_new_epoch(seen: Brokers, leader: int, isr: tuple[int, ...]) -> None:
    new = elect(IN_5, seen, never)
    assert new is not None
    assert (new.leader, new.leader_epoch, new.isr) == (leader, 6, isr)
    if leader != NO_LEADER:
        expected = tuple(seen.registrations[each].incarnation for each in isr)
        assert new.isr_incarnations == expected


def test_a_leader_that_is_alive_continues() -> None:
    assert elect(IN_5, brokers(1, 2, 3), never) is None


def test_a_leader_without_a_session_continues_while_its_lease_may_hold() -> None:
    assert elect(IN_5, brokers(2, 3, leasing=(1, 2, 3)), never) is None


def test_the_dead_are_taken_out_of_the_isr_in_the_same_epoch() -> None:
    new = elect(IN_5, brokers(1, 3), never)
    assert new == IN_5._replace(isr=(1, 3), isr_incarnations=(0, 0))


def test_a_drained_leader_stays_if_no_other_replica_can_lead() -> None:
    alone = IN_5._replace(isr=(1,), isr_incarnations=(0,))
    assert elect(alone, brokers(1, 2, draining=(1,)), never) is None


@pytest.mark.parametrize("leader", [1, 2, 3])
def test_of_members_that_are_all_drained_none_takes_over_from_another(leader: int) -> None:
    state = IN_5._replace(leader=leader)
    assert elect(state, brokers(1, 2, 3, draining=(1, 2, 3)), never) is None


def test_a_drained_member_leads_when_the_leader_is_gone() -> None:
    new = elect(IN_5, brokers(2, 3, draining=(2, 3)), never)
    assert new is not None
    assert (new.leader, new.isr) == (2, (2, 3))


def test_the_only_replica_leads_even_after_a_crash() -> None:
    single = PartitionState(1, 5, (1,), (1,), isr_incarnations=(0,))
    new = elect(single, brokers(crashed=(1,)), never)
    assert new is not None
    assert (new.leader, new.isr, new.isr_incarnations) == (1, (1,), (1,))


def test_unclean_a_former_member_is_better_than_a_stranger() -> None:
    shrunk = IN_5._replace(isr=(3,), isr_incarnations=(0,))
    assert elect(shrunk, brokers(2), always).leader == 2  # type: ignore[union-attr]
    assert elect(shrunk, brokers(2, crashed=(3,)), always).leader == 3  # type: ignore[union-attr]


def test_no_leader_stays_no_leader_in_the_same_epoch() -> None:
    without = IN_5._replace(leader=NO_LEADER)
    assert elect(without, brokers(), never) is None


@pytest.mark.parametrize(
    ("state", "seen", "leader"),
    [
        (IN_5._replace(leader=2), brokers(1, 2, 3), 1),
        (IN_5, brokers(1, 2, 3), None),
        (IN_5._replace(leader=2, isr=(2, 3), isr_incarnations=(0, 0)), brokers(1, 2, 3), None),
        (IN_5._replace(leader=2), brokers(2, 3), None),
        (IN_5._replace(leader=2), brokers(2, 3, crashed=(1,)), None),
        (IN_5._replace(leader=2), brokers(1, 2, 3, draining=(1,)), None),
    ],
)
def test_leadership_goes_back_to_the_first_replica(
    state: PartitionState, seen: Brokers, leader: int | None
) -> None:
    new = prefer_leader(state, seen)
    assert (None if new is None else new.leader) == leader


def test_elections_that_are_asked_for() -> None:
    view = Cluster(broker(1), broker(2), broker(3))
    topic = view.add("t", (1, 2, 3), (2, 1, 3), (3, 1, 2))
    states = (topic.partitions[0], topic.partitions[1]._replace(leader=1),
              topic.partitions[2]._replace(leader=NO_LEADER))  # fmt: skip
    view.topics["t"] = replace(topic, partitions=states)
    keys = [TopicPartition("t", index) for index in (0, 1, 2, 7)]

    def results(kind: ElectionType, seen: Brokers) -> list[object]:
        return [
            each.error.code if each.error is not None else each.state and each.state.leader
            for each in decide_elections(view, seen, kind, keys)
        ]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    not_needed = ErrorCode.ELECTION_NOT_NEEDED
    preferred, unclean = ElectionType.PREFERRED, ElectionType.UNCLEAN
    assert results(preferred, brokers(1, 2, 3)) == [not_needed, 2, 3, unknown]
    assert results(preferred, brokers(1)) == [
        not_needed,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        unknown,
    ]
    assert results(unclean, brokers(crashed=(1,))) == [not_needed, not_needed, 1, unknown]
    assert results(unclean, brokers())[2] == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    every = decide_elections(view, brokers(1, 2, 3), preferred, None)
    assert [each.partition.partition for each in every] == [1, 2]
