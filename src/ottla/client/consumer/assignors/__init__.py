"""Assignors that the leader of a classic group runs (pure).

An assignor takes the number of partitions of each topic and the subscription of each member, and
returns the partitions of each member. Every partition of a subscribed topic goes to exactly one of
its subscribers. The result does not depend on the order of the mappings.

    range               each topic separately, consecutive partitions to the same member
    roundrobin          all partitions in turn
    sticky              as even as possible, moving as few partitions as possible
    cooperative-sticky  the same in two rebalances: moved partitions are first revoked, then
                        assigned"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.client.consumer import protocol
from ottla.client.consumer.assignors.even import assign_range, assign_round_robin
from ottla.client.consumer.assignors.sticky import assign_cooperatively, assign_sticky
from ottla.client.consumer.protocol import MemberSubscription

Assign = Callable[
    [Mapping[str, int], Mapping[str, MemberSubscription]], dict[str, list[TopicPartition]]
]
UserData = Callable[[Iterable[TopicPartition], int], bytes | None]


class Assignor(NamedTuple):
    name: str
    assign: Assign
    is_cooperative: bool
    user_data: UserData
    """Function from the partitions that a member owned, and their generation, to the user data of
    its subscription."""


def _nothing(owned: Iterable[TopicPartition], generation: int) -> bytes | None:
    return None


def _generation(owned: Iterable[TopicPartition], generation: int) -> bytes | None:
    return protocol.encode_generation(generation)


ASSIGNORS = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_range, False, _nothing),
        Assignor("roundrobin", assign_round_robin, False, _nothing),
        Assignor("sticky", assign_sticky, False, protocol.encode_sticky_data),
        Assignor("cooperative-sticky", assign_cooperatively, True, _generation),
    )
}
