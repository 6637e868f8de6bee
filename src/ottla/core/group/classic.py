"""A group of the classic protocol: its members, generation and state.

State transitions

    from                 to                    when
    none, Empty          PreparingRebalance    a member joins
    Stable               PreparingRebalance    a member joins, leaves or is lost; the leader
                                               rejoins, or another member with changed metadata
    CompletingRebalance  PreparingRebalance    the same, or a member does not sync in time, or the
                                               assignment could not be written
    PreparingRebalance   CompletingRebalance   all members have joined, or those that have not
                                               joined in time are removed: a new generation begins
    PreparingRebalance   Empty                 ... and no member is left
    CompletingRebalance  Stable                the leader's assignment is in the log
    Stable               Stable                a static member returned and got a new member id
    any                  Dead                  the group was deleted, or its partition moved away

    Dead groups are not kept: Dead is the state reported for groups that do not exist.

Hard state is in the log and is changed only by `restore`: the generation, protocol, leader, members
and assignments of the last Stable or Empty state. Soft state is lost in a crash, after which
members rejoin: a rebalance in progress, delayed requests, and member ids that were issued but not
used yet.

Invariants
1. `awaiting_joins` is the number of members with a delayed JoinGroup; `votes[p]` is the number of
   members that support protocol p; `static_members` maps instance ids to member ids.
2. A group with members has a leader, which is one of them.
3. An assignment comes from the leader's SyncGroup of the current generation, through the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.coordinator import Token
from ottla.core.group.embedded_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from ottla.core.group.events import Protocols
from ottla.core.group.member import ClassicMember
from ottla.core.group.records import NO_TIMESTAMP, GroupMetadata, MemberMetadata

if TYPE_CHECKING:
    from ottla.wire.messages.join_group import JoinGroupResponseDict
    from ottla.wire.messages.sync_group import SyncGroupResponseDict


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
}
"""Each state, with the states from which a group may enter it."""


class ClassicGroup:
    __slots__ = (
        "awaiting_joins",
        "generation",
        "group_id",
        "is_recorded",
        "leader_id",
        "members",
        "new_member_added",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "votes",
    )

    def __init__(self, group_id: str, state_timestamp_ms: int | None = None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_timestamp_ms = state_timestamp_ms
        """Time of the last state change, or None if it is not known."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: set[str] = set()
        """Member ids that were issued but with which no client has joined yet (KIP-394)."""
        self.pending_syncs: dict[str, None] = {}
        """Members of this generation that have not sent SyncGroup yet."""
        self.votes: dict[str, int] = {}
        self.awaiting_joins = 0
        self.new_member_added = False
        """Whether a member joined since the initial rebalance delay was last extended."""
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that members subscribe to, or None if they are not known."""
        self.is_recorded = False
        """Whether the log has a record of the group."""

    # -------------------------------------------------------------------------------------- queries

    @property
    def is_blank(self) -> bool:
        """Whether the group can be dropped without losing anything but its offsets."""
        return (
            self.state is GroupState.EMPTY
            and not self.is_recorded
            and not self.pending_joins
            and not self.members
        )

    @property
    def has_all_joined(self) -> bool:
        return self.awaiting_joins == len(self.members) and not self.pending_joins

    @property
    def can_rebalance(self) -> bool:
        return self.state in TRANSITIONS[GroupState.PREPARING_REBALANCE]

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols could join.

        There must be a protocol that it has in common with all members.
        """
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.votes.get(name, 0) == size for name, _ in protocols
        )

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Return the member with the given ids.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
        """
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def choose_protocol(self) -> str:
        """Return the protocol with the most votes; on a tie, the one that was voted for first.

        Each member votes for its most preferred protocol among those that all members support.
        """
        size = len(self.members)
        ballots: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if self.votes[name] == size)
            ballots[choice] = ballots.get(choice, 0) + 1
        return max(ballots, key=lambda name: ballots[name])

    # ------------------------------------------------------------------------------- members

    def add(self, member: ClassicMember) -> None:
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        self.pending_joins.discard(member.member_id)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count_votes(member.protocols, 1)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member. The caller must answer its delayed requests."""
        self.pending_joins.discard(member_id)
        self.pending_syncs.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count_votes(member.protocols, -1)
        if member.join_token is not None:
            self.awaiting_joins -= 1
        if member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def update(
        self,
        member: ClassicMember,
        protocols: Protocols,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._count_votes(member.protocols, -1)
        member.protocols = protocols
        self._count_votes(protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Change the id of a static member, which keeps its position."""
        old_id = member.member_id
        member.member_id = member_id
        self.members = {each.member_id: each for each in self.members.values()}
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id
        if old_id in self.pending_syncs:
            del self.pending_syncs[old_id]
            self.pending_syncs[member_id] = None

    def delay_join(
        self, member: ClassicMember, token: Token[JoinGroupResponseDict] | None
    ) -> Token[JoinGroupResponseDict] | None:
        """Delay a JoinGroup until the rebalance is complete; return the one it replaces."""
        old, member.join_token = member.join_token, token
        self.awaiting_joins += (token is not None) - (old is not None)
        return old

    def pop_join(self, member: ClassicMember) -> Token[JoinGroupResponseDict] | None:
        return self.delay_join(member, None)

    def pop_sync(self, member: ClassicMember) -> Token[SyncGroupResponseDict] | None:
        token, member.sync_token = member.sync_token, None
        return token

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader takes part in the rebalance; return False if no member does."""
        leader = self.members.get(self.leader_id or "")
        if leader is None:
            return False
        if leader.join_token is None:
            joined = (each for each in self.members.values() if each.join_token is not None)
            leader = next(joined, None)
            if leader is None:
                return False
            self.leader_id = leader.member_id
        return True

    def _count_votes(self, protocols: Protocols, change: int) -> None:
        for name in dict.fromkeys(name for name, _ in protocols):
            count = self.votes.get(name, 0) + change
            if count:
                self.votes[name] = count
            else:
                self.votes.pop(name, None)

    # --------------------------------------------------------------------------- states and records

    def move_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in TRANSITIONS[state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Start the next generation once all participating members have joined."""
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = self.choose_protocol()
        self.subscribed_topics = self._find_subscribed_topics()
        self.move_to(GroupState.COMPLETING_REBALANCE, now_ms)

    def metadata(
        self, now_ms: int, assignments: Mapping[str, bytes] | None = None
    ) -> GroupMetadata:
        """Return the group's record value, with new assignments if they are given."""
        members = tuple(
            MemberMetadata(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata_for(self.protocol_name),
                member.assignment
                if assignments is None
                else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        return GroupMetadata(
            self.protocol_type or "",
            self.generation,
            self.protocol_name,
            self.leader_id,
            now_ms,
            members,
        )

    def restore(self, value: GroupMetadata) -> None:
        """Apply a record. Members that exist already keep the fields that records do not have."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol_name
        known, self.members = self.members, {}
        self.static_members, self.votes = {}, {}
        self.leader_id = None
        for recorded in value.members:
            member = known.get(recorded.member_id) or ClassicMember.recorded(
                recorded, value.protocol_name
            )
            member.assignment = recorded.assignment
            self.add(member)
        if value.leader_id in self.members:
            self.leader_id = value.leader_id
        self.awaiting_joins = sum(each.join_token is not None for each in self.members.values())
        self.pending_syncs = {id: None for id in self.pending_syncs if id in self.members}
        self.previous_state = self.state
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        known_time = value.state_timestamp_ms != NO_TIMESTAMP
        self.state_timestamp_ms = value.state_timestamp_ms if known_time else None
        self.subscribed_topics = self._find_subscribed_topics()
        self.is_recorded = True

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return frozenset(_topics_of(self.members.values(), self.protocol_name))
        except ValueError:
            return None


def _topics_of(members: Iterable[ClassicMember], protocol_name: str) -> Iterable[str]:
    for member in members:
        yield from subscribed_topics(member.metadata_for(protocol_name))
