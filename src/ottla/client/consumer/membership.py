"""What a member of a group does next. Pure: answers and codes in, decisions out.

Classic protocol, one round:
    (eager: give everything back) ─ JoinGroup ─► generation, maybe leader ─ SyncGroup ─► assignment
    ─ (cooperative: give back what is not in it; if anything, another round) ─► stable ─ Heartbeat …
A code in an answer calls for one `Reaction`; the table below has them all."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.cluster import LOST_COORDINATOR
from ottla.wire.api import Api


class Reaction(Enum):
    GO_ON = auto()
    TRY_AGAIN = auto()
    """The coordinator is busy: the same again, after a pause."""
    FIND_COORDINATOR = auto()
    """It is another broker now."""
    JOIN_WITH_ID = auto()
    """The broker wants to see the id that it gave us (KIP-394)."""
    REJOIN = auto()
    """The group rebalances: join again as who we are."""
    START_OVER = auto()
    """The group does not know us: what we had is lost; join as a new member."""
    GIVE_UP = auto()
    """Trying again would not help: the user must know."""


_ANYWHERE = {
    ErrorCode.NONE: Reaction.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.TRY_AGAIN,
    **dict.fromkeys(LOST_COORDINATOR, Reaction.FIND_COORDINATOR),
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.START_OVER,
    ErrorCode.ILLEGAL_GENERATION: Reaction.START_OVER,
}
_ONLY_IN: dict[Api, dict[ErrorCode, Reaction]] = {
    Api.JOIN_GROUP: {
        ErrorCode.MEMBER_ID_REQUIRED: Reaction.JOIN_WITH_ID,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.TRY_AGAIN,
    },
    Api.CONSUMER_GROUP_HEARTBEAT: {
        ErrorCode.FENCED_MEMBER_EPOCH: Reaction.START_OVER,
        ErrorCode.UNRELEASED_INSTANCE_ID: Reaction.GIVE_UP,
    },
}


def reaction_to(api: Api, code: int) -> Reaction:
    """What an error code in the answer of a group's coordinator calls for."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return Reaction.GIVE_UP
    found = _ONLY_IN.get(api, {}).get(known) or _ANYWHERE.get(known)
    return Reaction.GIVE_UP if found is None else found


class Plan(NamedTuple):
    """From one assignment to the next."""

    revoke: tuple[TopicPartition, ...]
    add: tuple[TopicPartition, ...]

    @property
    def needs_another_round(self) -> bool:
        """Cooperatively: others wait for what is given back."""
        return bool(self.revoke)


def plan(owned: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> Plan:
    before, after = set(owned), set(assigned)
    return Plan(tuple(sorted(before - after)), tuple(sorted(after - before)))


class PollProgress:
    """Whether the user still polls. The user's side only writes `polls`, `is_in_poll` and `last`;
    the other compares: writing is all that a fast path can afford."""

    __slots__ = ("polls", "is_in_poll", "last", "_seen", "_seen_at")

    def __init__(self, now: float) -> None:
        self.polls = 0
        self.is_in_poll = False
        self.last: object = None
        """The record that was handed out last by an iterator."""
        self._seen: tuple[int, object] = (0, None)
        self._seen_at = now

    def idle_s(self, now: float) -> float:
        """For how long nobody has been seen to poll."""
        polls, last = self._seen
        if self.is_in_poll or self.polls != polls or self.last is not last:
            self._seen, self._seen_at = (self.polls, self.last), now
        return now - self._seen_at
