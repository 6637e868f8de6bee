"""Decisions of a group member: from responses and error codes to actions (pure).

One round of the classic protocol:
    (eager: revoke everything) ─ JoinGroup ─► generation, maybe leader ─ SyncGroup ─► assignment
    ─ (cooperative: revoke what is not in it; if anything, another round) ─► stable ─ Heartbeat …
Each error code in a response maps to one `Reaction`; the tables below list them all."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.client.cluster import LOST_COORDINATOR
from ottla.wire.api import Api


class Reaction(Enum):
    CONTINUE = auto()
    RETRY = auto()
    """The coordinator is busy: retry after a pause."""
    FIND_COORDINATOR = auto()
    """Another broker is the coordinator now."""
    JOIN_WITH_ID = auto()
    """Join again with the member ID that the broker assigned (KIP-394)."""
    REJOIN = auto()
    """The group is rebalancing: rejoin with the same member ID."""
    START_OVER = auto()
    """The group does not know this member: its partitions are lost; join as a new one."""
    FAIL = auto()
    """The error is permanent: report it to the user."""


_ANYWHERE = {
    ErrorCode.NONE: Reaction.CONTINUE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    **dict.fromkeys(LOST_COORDINATOR, Reaction.FIND_COORDINATOR),
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.START_OVER,
    ErrorCode.ILLEGAL_GENERATION: Reaction.START_OVER,
}
_ONLY_IN: dict[Api, dict[ErrorCode, Reaction]] = {
    Api.JOIN_GROUP: {
        ErrorCode.MEMBER_ID_REQUIRED: Reaction.JOIN_WITH_ID,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.RETRY,
    },
    Api.CONSUMER_GROUP_HEARTBEAT: {
        ErrorCode.FENCED_MEMBER_EPOCH: Reaction.START_OVER,
        ErrorCode.UNRELEASED_INSTANCE_ID: Reaction.FAIL,
    },
}


def reaction_to(api: Api, code: int) -> Reaction:
    """Return the reaction to an error code in a coordinator's response."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return Reaction.FAIL
    found = _ONLY_IN.get(api, {}).get(known) or _ANYWHERE.get(known)
    return Reaction.FAIL if found is None else found


class Plan(NamedTuple):
    """Difference between two assignments."""

    revoke: tuple[TopicPartition, ...]
    add: tuple[TopicPartition, ...]

    @property
    def needs_another_round(self) -> bool:
        """Whether, in the cooperative protocol, others wait for the revoked partitions."""
        return bool(self.revoke)


def plan(owned: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> Plan:
    before, after = set(owned), set(assigned)
    return Plan(tuple(sorted(before - after)), tuple(sorted(after - before)))


class PollProgress:
    """Tracker for whether the user still polls.

    The polling side only writes `polls`, `is_in_poll` and `last`, which is cheap enough for the
    fast path; the heartbeat task compares them."""

    __slots__ = ("polls", "is_in_poll", "last", "_seen", "_seen_at")

    def __init__(self, now: float) -> None:
        self.polls = 0
        self.is_in_poll = False
        self.last: object = None
        """The record that an iterator yielded last."""
        self._seen: tuple[int, object] = (0, None)
        self._seen_at = now

    def idle_s(self, now: float) -> float:
        """Return the time since the user was last seen polling."""
        polls, last = self._seen
        if self.is_in_poll or self.polls != polls or self.last is not last:
            self._seen, self._seen_at = (self.polls, self.last), now
        return now - self._seen_at
