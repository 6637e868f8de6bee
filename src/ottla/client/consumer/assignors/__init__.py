"""How the leader of a classic group shares partitions among its members. Pure.

An assignor is given every topic's number of partitions and what each member told, and gives each
member its partitions: every partition of a topic that anybody subscribed to goes to exactly one of
its subscribers. The same input gives the same output, in any order of the mappings.

    range               each topic by itself: neighbours together
    roundrobin          all partitions in turn
    sticky              as even as can be, moving as little as can be
    cooperative-sticky  the same in two steps: what moves is first given back, then assigned"""

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
    """What a member adds to its subscription, of the partitions that it had, and in which
    generation."""


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
