"""Sticky assignors: as even as possible, moving as few partitions as possible.

1. A member keeps its partitions, except those that another member owned in a later generation and
   those of topics it no longer subscribes to. Partitions that two members claim for the same
   generation count as unowned.
2. Unowned partitions go to the subscriber with the fewest partitions, starting with the partitions
   that have the fewest subscribers.
3. While a member has at least two more partitions than another one that subscribes to one of their
   topics, one partition moves.

The result cannot be improved by a single move; if all subscriptions are equal, the shares differ by
at most one. The cooperative variant leaves out partitions that move to another member: their owner
revokes them, the group rebalances again, and only then are they assigned (KIP-429)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ottla.base.types import TopicPartition
from ottla.client.consumer.protocol import (
    NO_GENERATION,
    MemberSubscription,
    decode_generation,
    decode_sticky_data,
)

Assignment = dict[str, list[TopicPartition]]
Owned = dict[str, tuple[tuple[TopicPartition, ...], int]]
"""The partitions that each member claims to have owned, and in which generation."""


def assign_sticky(
    counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> Assignment:
    """Assign with the eager protocol.

    Members report their previous partitions in the user data, because they revoke everything
    before they join."""
    owned: Owned = {}
    for member, subscription in members.items():
        try:
            owned[member] = decode_sticky_data(subscription.user_data)
        except ValueError:
            owned[member] = ((), NO_GENERATION)
        if not owned[member][0]:
            owned[member] = (subscription.owned, subscription.generation)
    return _balance(counts, members, _owners(counts, members, owned))


def assign_cooperatively(
    counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> Assignment:
    owned: Owned = {
        member: (
            subscription.owned,
            max(subscription.generation, decode_generation(subscription.user_data)),
        )
        for member, subscription in members.items()
    }
    owners = _owners(counts, members, owned)
    assignment = _balance(counts, members, owners)
    return {
        member: [tp for tp in partitions if owners.get(tp, member) == member]
        for member, partitions in assignment.items()
    }


def _owners(
    counts: Mapping[str, int], members: Mapping[str, MemberSubscription], owned: Owned
) -> dict[TopicPartition, str]:
    """Return the last owner of each partition, if that member may keep it."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in sorted(owned):
        partitions, generation = owned[member]
        for tp in partitions:
            if not 0 <= tp.partition < counts.get(tp.topic, 0):
                continue
            best = claims.get(tp)
            if best is None or generation > best[0]:
                claims[tp] = (generation, member)
            elif generation == best[0]:
                claims[tp] = (generation, None)
    return {
        tp: member
        for tp, (_, member) in claims.items()
        if member is not None and tp.topic in members[member].topics
    }


def _balance(
    counts: Mapping[str, int],
    members: Mapping[str, MemberSubscription],
    owners: Mapping[TopicPartition, str],
) -> Assignment:
    subscribers: dict[str, list[str]] = {
        topic: [member for member in sorted(members) if topic in members[member].topics]
        for topic in sorted(counts)
    }
    shares = _AssignmentBuilder(
        sorted(members), {member: set(members[member].topics) for member in members}
    )
    unowned: list[TopicPartition] = []
    for topic, candidates in subscribers.items():
        for number in range(counts[topic] if candidates else 0):
            tp = TopicPartition(topic, number)
            if tp in owners:
                shares.assign(owners[tp], tp)
            else:
                unowned.append(tp)
    unowned.sort(key=lambda tp: (len(subscribers[tp.topic]), tp))
    fresh = set(unowned)
    for tp in unowned:
        shares.assign(min(subscribers[tp.topic], key=lambda each: (shares.size[each], each)), tp)
    while shares.move_one(fresh):
        pass
    return shares.assignment()


class _AssignmentBuilder:
    def __init__(self, members: list[str], topics: Mapping[str, set[str]]) -> None:
        self.size = dict.fromkeys(members, 0)
        self._topics = topics
        self._by_topic: dict[str, defaultdict[str, list[TopicPartition]]] = {
            member: defaultdict(list) for member in members
        }

    def assign(self, member: str, tp: TopicPartition) -> None:
        self._by_topic[member][tp.topic].append(tp)
        self.size[member] += 1

    def move_one(self, fresh: set[TopicPartition]) -> bool:
        """Move one partition from the largest to the smallest share for which that is possible.

        A partition that had no owner is preferred. Return False if no move improves the balance."""
        ordered = sorted(self.size, key=lambda each: (self.size[each], each))
        for least in ordered:
            for most in reversed(ordered):
                if self.size[most] - self.size[least] < 2:
                    break
                common = sorted(
                    topic
                    for topic, partitions in self._by_topic[most].items()
                    if partitions and topic in self._topics[least]
                )
                if common:
                    self._move(most, least, common, fresh)
                    return True
        return False

    def _move(self, giver: str, taker: str, topics: list[str], fresh: set[TopicPartition]) -> None:
        held = self._by_topic[giver]
        chosen = next((tp for topic in topics for tp in held[topic] if tp in fresh), None)
        if chosen is None:
            chosen = held[topics[0]][-1]
        held[chosen.topic].remove(chosen)
        self.size[giver] -= 1
        self.assign(taker, chosen)

    def assignment(self) -> Assignment:
        return {
            member: sorted(tp for partitions in held.values() for tp in partitions)
            for member, held in self._by_topic.items()
        }
