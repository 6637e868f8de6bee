"""Tests that assignors assign every partition once, evenly, and with few moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.types import TopicPartition
from ottla.client.consumer.assignors import ASSIGNORS
from ottla.client.consumer.protocol import MemberSubscription, encode_sticky_data

TOPICS = ("a", "b", "c", "d")
Assignment = Mapping[str, list[TopicPartition]]

counts_of = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})
members_of = st.dictionaries(
    st.text("mnopqr", min_size=1, max_size=3),
    st.frozensets(st.sampled_from(TOPICS), min_size=1).map(sorted).map(tuple),
    min_size=1,
    max_size=6,
)


def subscription(topics: tuple[str, ...], **more: object) -> MemberSubscription:
    return MemberSubscription(topics, **more)  # type: ignore[arg-type]


def check_complete(
    counts: Mapping[str, int], members: Mapping[str, tuple[str, ...]], assignment: Assignment
) -> None:
    given_out = [tp for partitions in assignment.values() for tp in partitions]
    wanted = {topic for topics in members.values() for topic in topics}
    assert sorted(given_out) == sorted(
        TopicPartition(topic, number) for topic in wanted for number in range(counts[topic])
    )
    assert set(assignment) == set(members)
    for member, partitions in assignment.items():
        assert {tp.topic for tp in partitions} <= set(members[member])


def is_balanced(members: Mapping[str, tuple[str, ...]], assignment: Assignment) -> bool:
    """Return whether no single move would make the assignment more even."""
    return not any(
        len(assignment[more]) - len(assignment[less]) > 1
        and any(tp.topic in members[less] for tp in assignment[more])
        for more in members
        for less in members
    )


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@given(counts=counts_of, members=members_of)
def test_every_partition_goes_to_one_of_its_subscribers(
    name: str, counts: dict[str, int], members: dict[str, tuple[str, ...]]
) -> None:
    assignor = ASSIGNORS[name]
    subscriptions = {member: subscription(topics) for member, topics in members.items()}
    assignment = assignor.assign(counts, subscriptions)
    check_complete(counts, members, assignment)
    again = assignor.assign(counts, dict(reversed(list(subscriptions.items()))))
    assert again == assignment


@given(counts=counts_of, members=members_of)
def test_sticky_is_balanced(counts: dict[str, int], members: dict[str, tuple[str, ...]]) -> None:
    subscriptions = {member: subscription(topics) for member, topics in members.items()}
    assert is_balanced(members, ASSIGNORS["sticky"].assign(counts, subscriptions))


@given(counts=counts_of, names=st.sets(st.text("mnopqr", min_size=1, max_size=3), min_size=2))
def test_sticky_keeps_all_but_a_fair_share_when_one_joins_or_leaves(
    counts: dict[str, int], names: set[str]
) -> None:
    assign = ASSIGNORS["sticky"].assign
    *stayers, newcomer = sorted(names)
    before = assign(counts, {name: subscription(TOPICS) for name in stayers})
    after = assign(counts, {
        **{name: subscription(TOPICS, user_data=encode_sticky_data(before[name], 1))
           for name in stayers},
        newcomer: subscription(TOPICS),
    })  # fmt: skip
    total = sum(counts.values())
    moved = [tp for name in stayers for tp in after[name] if tp not in before[name]]
    assert not moved, "only the newcomer gets something new"
    assert len(after[newcomer]) in (total // len(names), -(-total // len(names)))

    left = {
        name: subscription(TOPICS, user_data=encode_sticky_data(after[name], 2)) for name in stayers
    }
    finally_ = assign(counts, left)
    assert all(set(after[name]) <= set(finally_[name]) for name in stayers)


@given(counts=counts_of, members=members_of, others=members_of)
def test_sticky_is_balanced_whatever_was_before(
    counts: dict[str, int],
    members: dict[str, tuple[str, ...]],
    others: dict[str, tuple[str, ...]],
) -> None:
    assign = ASSIGNORS["sticky"].assign
    before = assign(counts, {member: subscription(topics) for member, topics in others.items()})
    assignment = assign(counts, {
        member: subscription(topics, owned=tuple(before.get(member, ())), generation=3)
        for member, topics in members.items()
    })  # fmt: skip
    check_complete(counts, members, assignment)
    assert is_balanced(members, assignment)


@given(counts=counts_of, members=members_of, others=members_of)
def test_cooperatively_nothing_goes_to_two_and_two_rounds_are_enough(
    counts: dict[str, int],
    members: dict[str, tuple[str, ...]],
    others: dict[str, tuple[str, ...]],
) -> None:
    assign = ASSIGNORS["cooperative-sticky"].assign
    owned = assign(counts, {member: subscription(topics) for member, topics in others.items()})
    owned = {member: owned.get(member, []) for member in members}
    for round_number in range(3):
        assignment = assign(counts, {
            member: subscription(topics, owned=tuple(owned[member]), generation=round_number)
            for member, topics in members.items()
        })  # fmt: skip
        for member, partitions in assignment.items():
            elsewhere = {tp for other in members if other != member for tp in owned[other]
                         if tp.topic in members[other]}  # fmt: skip
            assert not set(partitions) & elsewhere, "it has not been revoked yet"
        if assignment == owned:
            break
        owned = assignment
    check_complete(counts, members, assignment)
    assert is_balanced(members, assignment)


def test_a_claim_of_a_later_generation_wins_and_equal_ones_cancel_out() -> None:
    tp = TopicPartition("a", 0)
    assign = ASSIGNORS["cooperative-sticky"].assign
    zombie = subscription(("a",), owned=(tp,), generation=1)
    owner = subscription(("a",), owned=(tp,), generation=2)
    assert assign({"a": 1}, {"m": zombie, "n": owner}) == {"m": [], "n": [tp]}
    assert sum(map(len, assign({"a": 1}, {"m": owner, "n": owner}).values())) == 1


def test_range_and_roundrobin_share_as_kafka_does() -> None:
    counts = {"a": 3, "b": 3}
    members = {name: subscription(("a", "b")) for name in ("m1", "m2")}
    by_range = ASSIGNORS["range"].assign(counts, members)
    assert [str(tp) for tp in by_range["m1"]] == ["a-0", "a-1", "b-0", "b-1"]
    assert [str(tp) for tp in by_range["m2"]] == ["a-2", "b-2"]
    in_turn = ASSIGNORS["roundrobin"].assign(counts, members)
    assert [str(tp) for tp in in_turn["m1"]] == ["a-0", "a-2", "b-1"]
    assert [str(tp) for tp in in_turn["m2"]] == ["a-1", "b-0", "b-2"]


def test_static_members_keep_their_place_with_a_new_member_id() -> None:
    def share(first_id: str, second_id: str) -> list[list[TopicPartition]]:
        members = {
            first_id: subscription(("a",), instance_id="1"),
            second_id: subscription(("a",), instance_id="2"),
        }
        assignment = ASSIGNORS["range"].assign({"a": 3}, members)
        return [assignment[first_id], assignment[second_id]]

    assert share("x", "y") == share("z", "y")


def test_sticky_of_a_thousand_partitions_is_quick() -> None:
    members = {f"m{number}": subscription(("a",)) for number in range(40)}
    first = ASSIGNORS["sticky"].assign({"a": 1000}, members)
    told_again = {
        name: subscription(("a",), owned=tuple(first[name]), generation=1)
        for name in sorted(members)[:20]
    }
    second = ASSIGNORS["sticky"].assign({"a": 1000}, told_again)
    assert all(set(first[name]) <= set(second[name]) for name in told_again)
    assert {len(partitions) for partitions in second.values()} == {50}
