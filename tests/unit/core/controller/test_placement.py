from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.controller.cluster import broker, brokers

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.controller.placement import (
    Stripe,
    alternate_racks,
    assign_replicas,
    check_manual_assignment,
)


def test_one_broker_holds_every_partition() -> None:
    assert assign_replicas(brokers(1), 3, 1, Stripe(7, 9)) == [(1,), (1,), (1,)]


def test_ten_partitions_on_five_brokers_are_striped_as_kafka_does() -> None:
    assert assign_replicas(brokers(5), 10, 3, Stripe(0, 0)) == [
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 5),
        (4, 5, 1),
        (5, 1, 2),
        (1, 3, 4),
        (2, 4, 5),
        (3, 5, 1),
        (4, 1, 2),
        (5, 2, 3),
    ]


def test_the_start_index_moves_leaders_and_the_shift_moves_followers() -> None:
    assert assign_replicas(brokers(4), 1, 2, Stripe(2, 1)) == [(3, 1)]


def test_racks_alternate_in_the_ring() -> None:
    racks = {0: "a", 1: "c", 2: "c", 3: "b", 4: "b", 5: "a"}
    assert alternate_racks(racks) == [0, 3, 1, 5, 4, 2]


def test_a_broker_without_a_rack_switches_rack_awareness_off() -> None:
    mixed = [broker(1, "a"), broker(2, "a"), broker(3)]
    assert assign_replicas(mixed, 1, 2, Stripe()) == [(1, 2)]


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(KafkaError, match="only 2") as raised:
        assign_replicas(brokers(2), 1, 3, Stripe())
    assert raised.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_added_partitions_continue_the_stripe() -> None:
    whole = assign_replicas(brokers(3), 9, 2, Stripe(1, 1))
    assert assign_replicas(brokers(3), 4, 2, Stripe(1, 1), first_partition=5) == whole[5:]


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    partitions=st.integers(1, 30),
    data=st.data(),
)
def test_replicas_are_distinct_leaders_even_and_racks_used_before_repeated(
    racks: list[str], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    stripe = Stripe(data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9)))
    members = [broker(id, rack) for id, rack in enumerate(racks)]
    assignment = assign_replicas(members, partitions, factor, stripe)
    assert len(assignment) == partitions
    for replicas in assignment:
        assert len(set(replicas)) == factor
        assert len({racks[id] for id in replicas}) == min(factor, len(set(racks)))
    leaders = Counter(replicas[0] for replicas in assignment)
    assert max(leaders.values()) - min(leaders[id] for id in range(len(racks))) <= 1


@pytest.mark.parametrize(
    ("replicas", "expected", "words"),
    [
        ([], None, "empty"),
        ([1, 1], None, "more than once"),
        ([1, 9], None, "broker 9"),
        ([1, 2], 1, "2 replica"),
        ([3], None, "fenced"),
    ],
)
def test_a_wrong_manual_assignment_is_refused(
    replicas: list[int], expected: int | None, words: str
) -> None:
    known = [broker(1), broker(2), broker(3, fenced=True)]
    with pytest.raises(KafkaError, match=words) as raised:
        check_manual_assignment(replicas, known, expected)
    assert raised.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_manual_assignment_with_one_broker_alive_passes() -> None:
    check_manual_assignment([3, 1], [broker(1), broker(3, fenced=True)], 2)
