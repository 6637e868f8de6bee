"""Events of the group coordinator: requests, expired timers, and changes in the broker.

Requests carry a token for the response. New unique ids are part of the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Never

from ottla.base.types import ZERO_UUID
from ottla.core.coordinator import ProducerIdAndEpoch, Token
from ottla.core.group.consumer_records import Assignment
from ottla.core.group.topics import TopicFilter, every_topic

if TYPE_CHECKING:
    from ottla.wire.messages import consumer_group_describe, describe_groups
    from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponseDict
    from ottla.wire.messages.delete_groups import DeletableGroupResultDict
    from ottla.wire.messages.heartbeat import HeartbeatResponseDict
    from ottla.wire.messages.join_group import JoinGroupResponseDict
    from ottla.wire.messages.leave_group import LeaveGroupResponseDict
    from ottla.wire.messages.list_groups import ListGroupsResponseDict
    from ottla.wire.messages.offset_commit import OffsetCommitResponseDict
    from ottla.wire.messages.offset_delete import OffsetDeleteResponseDict
    from ottla.wire.messages.offset_fetch import OffsetFetchResponseGroupDict
    from ottla.wire.messages.sync_group import SyncGroupResponseDict

Protocols = tuple[tuple[str, bytes], ...]
"""Protocol (assignor) names in the member's order of preference, with its metadata for each."""

NO_GENERATION = -1
UNKNOWN_MEMBER = ""
UNCHANGED = -1


@dataclass(slots=True)
class GroupEvent:
    """An event that concerns one group."""

    token: Token[Never] | None
    group_id: str

    @property
    def key(self) -> str | None:
        return self.group_id

    @property
    def commutes(self) -> bool:
        return False


# ---------------------------------------------------------------------------------- membership


@dataclass(slots=True)
class JoinRequested(GroupEvent):
    token: Token[JoinGroupResponseDict] | None
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    new_id: str
    """Unique suffix for the id of a new member."""
    member_id_required: bool = True
    """Whether a new member must first receive its id, and then join with it (KIP-394)."""
    can_skip_assignment: bool = True
    """Whether the client knows `skip_assignment`, which keeps a leader from assigning (KIP-814)."""


@dataclass(slots=True)
class SyncRequested(GroupEvent):
    token: Token[SyncGroupResponseDict] | None
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


@dataclass(slots=True)
class HeartbeatReceived(GroupEvent):
    token: Token[HeartbeatResponseDict] | None
    member_id: str
    instance_id: str | None
    generation: int


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None = None


@dataclass(slots=True)
class LeaveRequested(GroupEvent):
    token: Token[LeaveGroupResponseDict] | None
    members: Sequence[LeavingMember]


@dataclass(slots=True)
class ConsumerHeartbeat(GroupEvent):
    token: Token[ConsumerGroupHeartbeatResponseDict] | None
    """ConsumerGroupHeartbeat: join, heartbeat or leave, by epoch. None means unchanged."""

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED
    topics: Sequence[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    new_id: str = ""
    """The member id to use if the request has none."""
    visible: TopicFilter = every_topic
    """Returns the topics that the client may see; others match no pattern."""


# --------------------------------------------------------------------------- timers and failures


@dataclass(slots=True)
class SessionExpired(GroupEvent):
    member_id: str


@dataclass(slots=True)
class InitialDelayEnded(GroupEvent):
    delay_ms: int
    remaining_ms: int


@dataclass(slots=True)
class JoinTimedOut(GroupEvent):
    pass


@dataclass(slots=True)
class SyncTimedOut(GroupEvent):
    generation: int


@dataclass(slots=True)
class AssignmentNotWritten(GroupEvent):
    generation: int


@dataclass(slots=True)
class EmptyGroupNotWritten(GroupEvent):
    generation: int


@dataclass(slots=True)
class StaticMemberNotWritten(GroupEvent):
    instance_id: str
    old_member_id: str
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int


@dataclass(slots=True)
class RevocationTimedOut(GroupEvent):
    """A consumer group member has not revoked its partitions in time."""

    member_id: str
    member_epoch: int


@dataclass(slots=True)
class RejoinTimedOut(GroupEvent):
    """A classic member of a consumer group has not rejoined in time."""

    member_id: str


@dataclass(slots=True)
class ResyncTimedOut(GroupEvent):
    """A classic member of a consumer group has joined, but has not sent SyncGroup in time."""

    member_id: str


@dataclass(slots=True)
class GroupDowngraded(GroupEvent):
    """A consumer group has become a classic group, whose members must now join it."""


@dataclass(slots=True)
class ConsumerChangeNotWritten(GroupEvent):
    pass


# ------------------------------------------------------------------------------------- offsets


class CommitPartition(NamedTuple):
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class CommitTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: Sequence[CommitPartition]


@dataclass(slots=True)
class CommitRequested(GroupEvent):
    token: Token[OffsetCommitResponseDict] | None
    member_id: str
    instance_id: str | None
    generation: int
    retention_ms: int
    """The retention time of the offsets; -1 selects the broker's."""
    topics: Sequence[CommitTopic]
    knows_group_not_found: bool = True
    """Whether the client's version knows GROUP_ID_NOT_FOUND."""
    producer: ProducerIdAndEpoch | None = None
    """The producer whose transaction has the offsets (TxnOffsetCommit)."""
    knows_member_epochs: bool = True
    """Whether members of the consumer protocol may use the request's version."""

    @property
    def commutes(self) -> bool:
        return True


class FetchTopic(NamedTuple):
    name: str
    partitions: Sequence[int]
    topic_id: bytes = ZERO_UUID


@dataclass(slots=True)
class OffsetsRequested(GroupEvent):
    token: Token[OffsetFetchResponseGroupDict] | None
    topics: Sequence[FetchTopic] | None
    """The partitions to fetch, or None for all."""
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1


class OffsetsOfTopic(NamedTuple):
    topic: str
    partitions: Sequence[int]


@dataclass(slots=True)
class OffsetDeleteRequested(GroupEvent):
    token: Token[OffsetDeleteResponseDict] | None
    topics: Sequence[OffsetsOfTopic]


# ------------------------------------------------------------------------- groups as a whole


@dataclass(slots=True)
class DescribeRequested(GroupEvent):
    token: Token[describe_groups.DescribedGroupDict] | None


@dataclass(slots=True)
class ConsumerDescribeRequested(GroupEvent):
    token: Token[consumer_group_describe.DescribedGroupDict] | None


@dataclass(slots=True)
class DeleteRequested(GroupEvent):
    token: Token[DeletableGroupResultDict] | None


@dataclass(slots=True)
class ShardEvent:
    """An event that concerns all groups of the shard."""

    token: Token[Never] | None

    @property
    def key(self) -> str | None:
        return None

    @property
    def commutes(self) -> bool:
        return False


@dataclass(slots=True)
class ListRequested(ShardEvent):
    token: Token[ListGroupsResponseDict] | None
    states: frozenset[str]
    """Group states to include, in lower case; empty for all."""
    types: frozenset[str]


@dataclass(slots=True)
class RetentionChecked(ShardEvent):
    group_ids: Sequence[str]


@dataclass(slots=True)
class TopicDeleted(ShardEvent):
    topic: str
    topic_id: bytes
