"""Tests that assignors assign every partition once, evenly, and with few moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.group.assignors import ASSIGNORS, MemberSpec
from ottla.core.group.assignors.spec import TopicIdPartition
from ottla.core.group.consumer_records import Assignment

A, B, C = (bytes([number]) * 16 for number in range(1, 4))
Assigned = Mapping[str, Assignment]


def spec(
    *topics: bytes, assigned: Assignment | None = None, instance: str | None = None
) -> MemberSpec:
    return MemberSpec(frozenset(topics), assigned or {}, instance)


def places(assignment: Assignment) -> set[TopicIdPartition]:
    return {(topic, each) for topic, partitions in assignment.items() for each in partitions}


def again(members: Mapping[str, MemberSpec], assigned: Assigned) -> dict[str, MemberSpec]:
    """Return the members with the given current assignment."""
    return {id: each._replace(assigned=assigned.get(id, {})) for id, each in members.items()}


def moves(before: Assigned, after: Assigned) -> int:
    """Count the partitions lost by members that are in both assignments."""
    return sum(len(places(before[id]) - places(after[id])) for id in after if id in before)


# -------------------------------------------------------------------------------------- examples


def test_uniform_shares_all_topics_together() -> None:
    members = {"m1": spec(A, B), "m2": spec(A, B)}
    assigned = ASSIGNORS["uniform"](members, {A: 3, B: 1})
    assert [len(places(assigned[each])) for each in members] == [2, 2]


def test_uniform_gives_a_new_member_its_share_and_moves_nothing_else() -> None:
    members = {"m1": spec(A), "m2": spec(A)}
    before = ASSIGNORS["uniform"](members, {A: 6})
    more = {**again(members, before), "m3": spec(A)}
    after = ASSIGNORS["uniform"](more, {A: 6})
    assert {id: len(places(each)) for id, each in after.items()} == {"m1": 2, "m2": 2, "m3": 2}
    assert moves(before, after) == 2


def test_range_gives_the_same_partitions_of_each_topic() -> None:
    members = {"m2": spec(A, B), "m1": spec(A, B)}
    assert ASSIGNORS["range"](members, {A: 3, B: 3}) == {
        "m1": {A: frozenset({0, 1}), B: frozenset({0, 1})},
        "m2": {A: frozenset({2}), B: frozenset({2})},
    }


def test_range_knows_static_members_by_their_instance_ids() -> None:
    first = ASSIGNORS["range"]({"x": spec(A, instance="1"), "y": spec(A, instance="2")}, {A: 3})
    later = ASSIGNORS["range"]({"z": spec(A, instance="1"), "a": spec(A, instance="2")}, {A: 3})
    assert (first["x"], first["y"]) == (later["z"], later["a"])


def test_range_gives_topics_to_their_subscribers_alone() -> None:
    assigned = ASSIGNORS["range"]({"m1": spec(A), "m2": spec(A, B)}, {A: 2, B: 2})
    assert assigned == {"m1": {A: frozenset({0})}, "m2": {A: frozenset({1}), B: frozenset({0, 1})}}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_and_nothing_can_be_assigned(name: str) -> None:
    assert ASSIGNORS[name]({}, {A: 3}) == {}
    assert ASSIGNORS[name]({"m": spec()}, {}) == {"m": {}}
    assert ASSIGNORS[name]({"m": spec(A)}, {}) == {"m": {}}


# ------------------------------------------------------------------------------------ properties

topics = st.frozensets(st.sampled_from([A, B, C]))
counts = st.fixed_dictionaries({}, optional={each: st.integers(0, 12) for each in (A, B, C)})
partitions = st.frozensets(st.integers(0, 14), min_size=1)
held = st.dictionaries(st.sampled_from([A, B, C]), partitions)
instances = st.none() | st.sampled_from(["i", "j", "k"])
ids = st.text(st.sampled_from("abcdef"), min_size=1, max_size=2)
different = st.dictionaries(ids, st.builds(MemberSpec, topics, held, instances), max_size=8)
same = st.tuples(topics, st.dictionaries(ids, st.tuples(held, instances), max_size=8)).map(
    lambda drawn: {id: MemberSpec(drawn[0], *each) for id, each in drawn[1].items()}
)
groups = different | same


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=groups, counts=counts)
def test_every_partition_is_assigned_once_to_a_subscriber(
    name: str, members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    assigned = ASSIGNORS[name](members, counts)
    assert set(assigned) == set(members)
    everything = [place for each in assigned.values() for place in places(each)]
    wanted = {topic for each in members.values() for topic in each.topic_ids}
    expected = {(topic, each) for topic in wanted for each in range(counts.get(topic, 0))}
    assert len(everything) == len(set(everything))
    assert set(everything) == expected
    for id, assignment in assigned.items():
        assert set(assignment) <= members[id].topic_ids
        assert all(assignment.values()), "no empty sets"


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=groups, counts=counts, seed=st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(
    name: str, members: dict[str, MemberSpec], counts: dict[bytes, int], seed: object
) -> None:
    shuffled = list(members.items())
    seed.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ASSIGNORS[name](dict(shuffled), counts) == ASSIGNORS[name](members, counts)


@given(members=same, counts=counts)
def test_uniform_is_even_where_all_subscribe_to_the_same(
    members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    sizes = [len(places(each)) for each in ASSIGNORS["uniform"](members, counts).values()]
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(members=same, counts=counts)
def test_uniform_moves_no_more_than_evenness_needs(
    members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    """Members keep the partitions that only they own, up to their quota."""
    if not members:
        return
    assigned = ASSIGNORS["uniform"](members, counts)
    total = sum(len(places(each)) for each in assigned.values())
    quota, larger = divmod(total, len(members))
    seen: dict[TopicIdPartition, int] = {}
    for each in members.values():
        for place in places(each.assigned):
            seen[place] = seen.get(place, 0) + 1
    for id, each in members.items():
        valid = {
            place
            for place in places(each.assigned)
            if place[0] in each.topic_ids and place[1] < counts.get(place[0], 0)
        }
        alone = {place for place in valid if seen[place] == 1}
        kept = len(alone & places(assigned[id]))
        if valid == alone:
            assert kept >= min(len(alone), quota)
    extra = sum(len(places(each)) == quota + 1 for each in assigned.values())
    assert extra == larger


@given(members=groups, counts=counts)
def test_uniform_leaves_what_it_assigned_as_it_is(
    members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    assigned = ASSIGNORS["uniform"](members, counts)
    assert ASSIGNORS["uniform"](again(members, assigned), counts) == assigned


@given(members=different, counts=counts)
def test_no_single_move_makes_uniform_more_even(
    members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    assigned = ASSIGNORS["uniform"](members, counts)
    loads = {id: len(places(each)) for id, each in assigned.items()}
    for id, assignment in assigned.items():
        for topic in assignment:
            for other, each in members.items():
                assert topic not in each.topic_ids or loads[id] - loads[other] < 2


@given(members=groups, counts=counts, leaver=st.integers(0, 7))
def test_when_a_member_leaves_the_others_lose_nothing_where_all_subscribe_to_the_same(
    members: dict[str, MemberSpec], counts: dict[bytes, int], leaver: int
) -> None:
    if len({each.topic_ids for each in members.values()}) > 1 or len(members) < 2:
        return
    before = ASSIGNORS["uniform"](members, counts)
    gone = sorted(members)[leaver % len(members)]
    stay = {id: each for id, each in again(members, before).items() if id != gone}
    after = ASSIGNORS["uniform"](stay, counts)
    assert moves(before, after) == 0
