"""A group of the consumer protocol (KIP-848): who is in it, and what each is to have.

Everything here is hard state: it is changed by `apply` alone, from records, and never looked at
half-changed, but for what is marked soft.

    group epoch        grows whenever who is in the group, what they subscribe to, or those topics
                       change: the assignment has to be made anew
    assignment epoch   of the target assignment; the group epoch that it was made for
    member epoch       of the target assignment that the member has been brought to, or for which it
                       has been asked to give up partitions

    state         when
    Empty         nobody is in it
    Assigning     the group epoch is ahead of the assignment epoch
    Reconciling   somebody has not arrived at the target assignment yet
    Stable        all have

A member's state

    Stable ◄──────────── nothing to give up, nothing to wait for
      │  new target
      ▼
    UnrevokedPartitions  it has to give up partitions; its epoch does not change until it says that
      │                  it does not own them any more
      ▼
    UnreleasedPartitions it has what is free, and waits for what others still own

Invariants
1. A partition is assigned to one member at most, counting those that it is to give up and has not:
   `owners` says to whom.
2. Epochs of the group and of its assignment never go down while there are members.
3. `static_members` maps the instance ids of members to their ids."""

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
NOTHING: Assignment = {}


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
    assigned: Assignment = NOTHING
    pending_revocation: Assignment = NOTHING

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
        "patterns_checked_ms",
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
        """Topic id -> partition -> member."""
        self.has_subscription_metadata = False
        """Whether the log has a record of Kafka 4.0 that says what 4.1 keeps as a hash."""
        self._subscribed: dict[str, None] | None = None
        # Soft state
        self.topics_revision = -1
        """Up to where changes of topics have been looked at."""
        self.patterns_checked_ms = 0
        self.awaited_joins: set[str] = set()
        """Members of the classic protocol that have been told to join again, and have a timer."""

    # ------------------------------------------------------------------------------- questions

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
        """Those that members name, and those that their patterns match."""
        if self._subscribed is None:
            self._subscribed = topics_of(self.members.values(), self.patterns)
        return self._subscribed

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def member(self, member_id: str) -> ConsumerMember:
        """Raises KafkaError."""
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
        """As clients of the classic protocol name themselves. Raises KafkaError."""
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
        """Whether there is one that all members of the classic protocol have too."""
        classic = [each.classic for each in self.members.values() if each.classic is not None]
        return any(all(name in dict(each.protocols) for each in classic) for name in protocol_names)

    # -------------------------------------------------------------------------------- applying

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
                self._disown(old)
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
            # A log that is being compacted may have lost the record that came first.
            old = ConsumerMember(record.member_id, NO_METADATA)
        self._disown(old)
        value = record.value or CurrentAssignment(
            LEAVE_EPOCH, LEAVE_EPOCH, MemberState.STABLE, NOTHING, NOTHING
        )
        member = ConsumerMember(record.member_id, old.metadata, *value)
        self.members[record.member_id] = member
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                owners = self.owners.setdefault(topic_id, {})
                for partition in partitions:
                    owners[partition] = member.member_id

    def _disown(self, member: ConsumerMember) -> None:
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
