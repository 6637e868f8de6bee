"""A group of the consumer protocol (KIP-848): its members and their assignments.

All state here is hard state: it is changed only by `apply`, from records, except for the attributes
marked as soft.

    group epoch        grows with every change of the members, of their subscriptions, or of the
                       subscribed topics: a new assignment is needed
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that the member has reached; it stays behind until the
                       member has revoked the partitions that the target takes from it

    state         condition
    Empty         the group has no members
    Assigning     the group epoch is ahead of the assignment epoch
    Reconciling   a member has not reached the target assignment yet
    Stable        all members have reached it

Member states

    Stable ◄──────────── nothing to revoke, nothing to wait for
      │  new target
      ▼
    UnrevokedPartitions  the member has to revoke partitions; its epoch does not change until it
      │                  reports that it no longer owns them
      ▼
    UnreleasedPartitions the member has all free partitions of its target, and waits for those that
                         other members still own

Invariants
1. A partition is assigned to at most one member, counting partitions pending revocation. `owners`
   maps it to that member.
2. The group epoch and the assignment epoch never decrease while the group has members.
3. `static_members` maps instance ids to member ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.group.consumer_records import (
    NO_HASH,
    Assignment,
    ClassicMetadata,
    ConsumerRecord,
    CurrentAssignment,
    CurrentRecord,
    GroupEpochRecord,
    MemberMetadata,
    MemberRecord,
    MemberState,
    PatternRecord,
    ResolvedPattern,
    SubscriptionMetadataRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)

LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
JOIN_EPOCH = 0
NO_PARTITIONS: Assignment = {}
NO_REVISION = -1


class ConsumerGroupState(Enum):
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerMember(NamedTuple):
    member_id: str
    metadata: MemberMetadata
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: int = MemberState.STABLE
    assigned: Assignment = NO_PARTITIONS
    pending_revocation: Assignment = NO_PARTITIONS

    @property
    def instance_id(self) -> str | None:
        return self.metadata.instance_id

    @property
    def classic(self) -> ClassicMetadata | None:
        return self.metadata.classic

    @property
    def current(self) -> CurrentAssignment:
        return CurrentAssignment(*self[2:])

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state == MemberState.STABLE and self.epoch == epoch


NO_METADATA = MemberMetadata(None, None, "", "", (), None, -1, None)


class ConsumerGroup:
    __slots__ = (
        "_subscribed",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "awaited_joins",
        "epoch",
        "group_id",
        "has_subscription_metadata",
        "members",
        "metadata_hash",
        "owners",
        "patterns",
        "patterns_are_old",
        "patterns_checked_ms",
        "patterns_revision",
        "static_members",
        "targets",
        "topics_revision",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = NO_HASH
        self.assignment_epoch = 0
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        self.owners: dict[bytes, dict[int, str]] = {}
        """The owner of each partition: topic id -> partition -> member id."""
        self.has_subscription_metadata = False
        """Whether the log has a topic metadata record of Kafka 4.0; 4.1 keeps a hash instead."""
        self._subscribed: dict[str, None] | None = None
        # Soft state
        self.topics_revision = NO_REVISION
        """The metadata revision up to which topic changes have been taken into account."""
        self.patterns_revision = NO_REVISION
        """The last creation or deletion of a topic after which all patterns were matched."""
        self.patterns_are_old = False
        """Whether patterns must be matched again although no topic was created or deleted."""
        self.patterns_checked_ms = 0
        self.awaited_joins: set[str] = set()
        """Classic members that have been asked to rejoin and have a rejoin timer."""

    # -------------------------------------------------------------------------------------- queries

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def subscribed_topics(self) -> dict[str, None]:
        """The topics that members list, and those that match their patterns."""
        if self._subscribed is None:
            self._subscribed = topics_of(self.members.values(), self.patterns)
        return self._subscribed

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID if there is no such member.
        """
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        return self.members.get(self.static_members.get(instance_id, ""))

    def known_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return the member with the given member id and, if it is static, instance id.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has taken over.
        """
        if instance_id is None:
            return self.member(member_id)
        member = self.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
            )
        return member

    def is_owned_by_another(self, topic_id: bytes, partition: int, member_id: str) -> bool:
        owner = self.owners.get(topic_id, {}).get(partition)
        return owner is not None and owner != member_id

    @property
    def classic_members(self) -> int:
        return sum(member.classic is not None for member in self.members.values())

    def supports_classic(self, protocol_names: Iterable[str]) -> bool:
        """Return whether all classic members support one of the protocols."""
        classic = [each.classic for each in self.members.values() if each.classic is not None]
        return any(all(name in dict(each.protocols) for each in classic) for name in protocol_names)

    def check_topics_again(self) -> None:
        """Have the next heartbeat look for changed topics, and match all patterns again."""
        self.topics_revision = NO_REVISION
        self.patterns_are_old = True

    # ----------------------------------------------------------------------------- applying records

    def apply(self, record: ConsumerRecord) -> None:
        match record:
            case GroupEpochRecord():
                self._apply_epoch(record)
            case MemberRecord():
                self._apply_member(record)
            case CurrentRecord():
                self._apply_current(record)
            case TargetRecord():
                self._apply_target(record)
            case TargetEpochRecord():
                self._apply_target_epoch(record)
            case PatternRecord():
                self._apply_pattern(record)
            case SubscriptionMetadataRecord():
                self.has_subscription_metadata = record.value is not None

    def _apply_epoch(self, record: GroupEpochRecord) -> None:
        if record.value is not None:
            self.epoch, self.metadata_hash = record.value

    def _apply_member(self, record: MemberRecord) -> None:
        self._subscribed = None
        old = self.members.get(record.member_id)
        if record.value is None:
            if old is not None:
                self._release_partitions(old)
                del self.members[record.member_id]
                self._forget_instance(old)
            return
        if old is None:
            self.members[record.member_id] = ConsumerMember(record.member_id, record.value)
        else:
            self._forget_instance(old)
            self.members[record.member_id] = old._replace(metadata=record.value)
        if record.value.instance_id is not None:
            self.static_members[record.value.instance_id] = record.member_id

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _apply_target_epoch(self, record: TargetEpochRecord) -> None:
        value = record.value or TargetEpoch(0)
        self.assignment_epoch, self.assignment_timestamp_ms = value

    def _apply_target(self, record: TargetRecord) -> None:
        if record.value is None:
            self.targets.pop(record.member_id, None)
        else:
            self.targets[record.member_id] = record.value

    def _apply_current(self, record: CurrentRecord) -> None:
        old = self.members.get(record.member_id)
        if old is None:
            if record.value is None:
                return
            # Compaction may have removed the member's metadata record, which came first.
            old = ConsumerMember(record.member_id, NO_METADATA)
        self._release_partitions(old)
        value = record.value or CurrentAssignment(
            LEAVE_EPOCH, LEAVE_EPOCH, MemberState.STABLE, NO_PARTITIONS, NO_PARTITIONS
        )
        member = ConsumerMember(record.member_id, old.metadata, *value)
        self.members[record.member_id] = member
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                owners = self.owners.setdefault(topic_id, {})
                for partition in partitions:
                    owners[partition] = member.member_id

    def _release_partitions(self, member: ConsumerMember) -> None:
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                owners = self.owners.get(topic_id)
                if owners is None:
                    continue
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    del self.owners[topic_id]

    def _apply_pattern(self, record: PatternRecord) -> None:
        self._subscribed = None
        if record.value is None:
            self.patterns.pop(record.pattern, None)
        else:
            self.patterns[record.pattern] = record.value


def topics_of(
    members: Iterable[ConsumerMember], patterns: dict[str, ResolvedPattern]
) -> dict[str, None]:
    """Return the topics that members list, and those that match their patterns."""
    found: dict[str, None] = {}
    used: dict[str, None] = {}
    for member in members:
        found.update(dict.fromkeys(member.metadata.topics))
        if member.metadata.pattern:
            used[member.metadata.pattern] = None
    for pattern in used:
        if pattern in patterns:
            found.update(dict.fromkeys(patterns[pattern].topics))
    return found
