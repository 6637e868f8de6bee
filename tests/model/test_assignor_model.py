"""Assignors through many changes of a group, each starting from the previous assignment.

The reference is arithmetic: each partition is assigned exactly once; loads differ by at most one
if all members subscribe to the same topics; and no more partitions move than the loads require."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from ottla.core.group.assignors import ASSIGNORS, MemberSpec
from ottla.core.group.assignors.spec import TopicIdPartition
from ottla.core.group.consumer_records import Assignment

TOPICS = tuple(bytes([number]) * 16 for number in range(1, 5))


def places(assignment: Assignment) -> set[TopicIdPartition]:
    return {(topic, each) for topic, partitions in assignment.items() for each in partitions}


class Assignors(RuleBasedStateMachine):
    @initialize(name=st.sampled_from(sorted(ASSIGNORS)), shared=st.booleans())
    def begin(self, name: str, shared: bool) -> None:
        self.name, self.shared = name, shared
        """Whether all members subscribe to all topics."""
        self.counts: dict[bytes, int] = {TOPICS[0]: 6}
        self.subscriptions: dict[str, frozenset[bytes]] = {}
        self.assigned: dict[str, Assignment] = {}
        self.joined = 0

    @rule(topics=st.frozensets(st.sampled_from(TOPICS), min_size=1))
    def join(self, topics: frozenset[bytes]) -> None:
        self.joined += 1
        everything = frozenset(TOPICS)
        self.subscriptions[f"m{self.joined}"] = everything if self.shared else topics
        self.assign()

    @rule(index=st.integers(0, 50))
    def leave(self, index: int) -> None:
        if self.subscriptions:
            member_id = sorted(self.subscriptions)[index % len(self.subscriptions)]
            del self.subscriptions[member_id]
            self.assign()

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(0, 9))
    def change_topic(self, topic: bytes, count: int) -> None:
        self.counts[topic] = count
        self.assign()

    @rule(index=st.integers(0, 50), topics=st.frozensets(st.sampled_from(TOPICS), min_size=1))
    def subscribe(self, index: int, topics: frozenset[bytes]) -> None:
        if self.subscriptions and not self.shared:
            member_id = sorted(self.subscriptions)[index % len(self.subscriptions)]
            self.subscriptions[member_id] = topics
            self.assign()

    def assign(self) -> None:
        members = {
            member_id: MemberSpec(topics, self.assigned.get(member_id, {}))
            for member_id, topics in self.subscriptions.items()
        }
        before, self.assigned = self.assigned, ASSIGNORS[self.name](members, self.counts)
        everything = [place for each in self.assigned.values() for place in places(each)]
        wanted = {topic for topics in self.subscriptions.values() for topic in topics}
        expected = {(topic, n) for topic in wanted for n in range(self.counts.get(topic, 0))}
        assert len(everything) == len(set(everything))
        assert set(everything) == expected
        if self.name == "uniform" and self.shared and members:
            self.check_uniform(before, expected)

    def check_uniform(self, before: dict[str, Assignment], expected: set[TopicIdPartition]) -> None:
        sizes = [len(places(each)) for each in self.assigned.values()]
        assert max(sizes) - min(sizes) <= 1
        quota, larger = divmod(len(expected), len(sizes))
        kept_before = sorted(
            (len(places(before.get(id, {})) & expected) for id in self.assigned), reverse=True
        )
        allowed = [quota + (rank < larger) for rank in range(len(sizes))]
        must_move = sum(max(0, had - may) for had, may in zip(kept_before, allowed, strict=True))
        moved = sum(
            len((places(before.get(id, {})) & expected) - places(each))
            for id, each in self.assigned.items()
        )
        assert moved == must_move, "not one more than needed"


NORMAL = settings(max_examples=30, stateful_step_count=40, deadline=None)
LONG = settings(max_examples=3_000, stateful_step_count=100, deadline=None)


def test_assignors_through_many_changes() -> None:
    run_state_machine_as_test(Assignors, settings=NORMAL)


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
def test_assignors_through_many_changes_for_long() -> None:
    run_state_machine_as_test(Assignors, settings=LONG)
