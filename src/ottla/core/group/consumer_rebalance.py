"""Reactions to changes of a consumer group: new epochs, target assignments and member steps.

A change of the members, of their subscriptions or of the subscribed topics starts a new group
epoch. A new target assignment is computed for it: at once or, if the last one is younger than
`group.consumer.assignment.interval.ms`, with a later heartbeat, so that several changes result in
one assignment. Each member then moves towards it, one step per heartbeat (reconciliation.py).

A pattern matches only topics that a member may see: the member whose heartbeat brings the pattern,
or is the first one after topics were created or deleted or permissions have changed. The topics
found are then those of all members with this pattern. Other events than heartbeats, such as an
expired session, do not match patterns, because they come from no client.

Nothing here changes the group. All changes are expressed as records, each of which is computed as
if the preceding ones had been applied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.core.group.assignors import ASSIGNORS, MemberSpec
from ottla.core.group.consumer_group import (
    NO_PARTITIONS,
    NO_REVISION,
    ConsumerGroup,
    ConsumerMember,
    topics_of,
)
from ottla.core.group.consumer_records import (
    NO_HASH,
    Assignment,
    ConsumerRecord,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    MemberState,
    PatternRecord,
    ResolvedPattern,
    SubscriptionMetadataRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from ottla.core.group.context import DecisionContext
from ottla.core.group.events import (
    ConsumerChangeNotWritten,
    RevocationTimedOut,
    SessionExpired,
)
from ottla.core.group.reconciliation import reconcile
from ottla.core.group.topic_pattern import compile_pattern
from ottla.core.group.topics import TopicFilter, TopicsView

PATTERNS_CHECKED_AFTER_MS = 1_000
"""Minimum interval between two matches of patterns against topics that change continuously."""

# ---------------------------------------------------------------------------------------- timers


def session_key(group: ConsumerGroup, member_id: str) -> tuple[str, ...]:
    return ("session", group.group_id, member_id)


def revocation_key(group: ConsumerGroup, member_id: str) -> tuple[str, ...]:
    return ("revocation", group.group_id, member_id)


def rejoin_key(group: ConsumerGroup, member_id: str) -> tuple[str, ...]:
    return ("rejoin", group.group_id, member_id)


def resync_key(group: ConsumerGroup, member_id: str) -> tuple[str, ...]:
    return ("resync", group.group_id, member_id)


def restart_session(group: ConsumerGroup, member: ConsumerMember, context: DecisionContext) -> None:
    classic = member.classic
    context.decision.start_timer(
        session_key(group, member.member_id),
        context.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms,
        SessionExpired(None, group.group_id, member.member_id),
    )


def start_revocation_timer(
    group: ConsumerGroup, member: ConsumerMember, context: DecisionContext
) -> None:
    context.decision.start_timer(
        revocation_key(group, member.member_id),
        member.metadata.rebalance_timeout_ms,
        RevocationTimedOut(None, group.group_id, member.member_id, member.epoch),
    )


def cancel_timers(group: ConsumerGroup, member_id: str, context: DecisionContext) -> None:
    for key in (session_key, revocation_key, rejoin_key, resync_key):
        context.decision.cancel_timer(key(group, member_id))
    group.awaited_joins.discard(member_id)


# ----------------------------------------------------------------------------------- the next epoch


@dataclass
class Plan:
    """The group as it will be once the records decided so far have been applied."""

    group: ConsumerGroup
    members: dict[str, ConsumerMember]
    targets: dict[str, Assignment]
    patterns: dict[str, ResolvedPattern]
    epoch: int
    metadata_hash: int
    assignment_epoch: int
    renamed: dict[str, str] = field(default_factory=dict)
    """Old and new member ids of static members that have returned."""
    visible: TopicFilter | None = None
    """Returns the topics that the member may see which sent a heartbeat. None if another event is
    decided: matching patterns is then postponed until the next heartbeat."""
    has_old_patterns: bool = False
    """Whether matching the patterns against the latest topics was postponed."""

    @classmethod
    def of(cls, group: ConsumerGroup, visible: TopicFilter | None = None) -> Plan:
        return cls(
            group,
            dict(group.members),
            dict(group.targets),
            dict(group.patterns),
            group.epoch,
            group.metadata_hash,
            group.assignment_epoch,
            visible=visible,
        )

    # -------------------------------------------------------------------------------- members

    def put_member(self, member: ConsumerMember, context: DecisionContext) -> bool:
        """Add or update a member; return whether the group's subscriptions change."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is not None and old.metadata == member.metadata:
            return False
        record = MemberRecord(self.group.group_id, member.member_id, member.metadata)
        context.decision.records.append(record)
        return old is None or (
            (old.metadata.topics, old.metadata.pattern or "")
            != (member.metadata.topics, member.metadata.pattern or "")
        )

    def rename_member(
        self, old: ConsumerMember, new: ConsumerMember, context: DecisionContext
    ) -> None:
        """Replace a static member that returned under a new id; it keeps its assignments."""
        group_id = self.group.group_id
        self.drop_member(old.member_id, context)
        target = self.group.targets.get(old.member_id, NO_PARTITIONS)
        self.renamed[old.member_id] = new.member_id
        self.members[new.member_id], self.targets[new.member_id] = new, target
        context.decision.records += (
            MemberRecord(group_id, new.member_id, new.metadata),
            TargetRecord(group_id, new.member_id, target),
            CurrentRecord(group_id, new.member_id, new.current),
        )

    def drop_member(self, member_id: str, context: DecisionContext) -> None:
        group_id = self.group.group_id
        self.members.pop(member_id, None)
        self.targets.pop(member_id, None)
        context.decision.records += (
            CurrentRecord(group_id, member_id, None),
            TargetRecord(group_id, member_id, None),
            MemberRecord(group_id, member_id, None),
        )

    # ---------------------------------------------------------------------------------- epochs

    def next_epoch_if(self, is_changed: bool, context: DecisionContext) -> None:
        """Start a new group epoch if the subscriptions or their topics have changed."""
        group = self.group
        topics_changed = group.topics_revision != context.topics.revision
        if not is_changed and not topics_changed:
            return
        if self._match_patterns(context):
            is_changed = True
        group.topics_revision = NO_REVISION if self.has_old_patterns else context.topics.revision
        known = hash_of_topics(topics_of(self.members.values(), self.patterns), context.topics)
        if known != self.metadata_hash:
            is_changed = True
        context.decision.if_failed = ConsumerChangeNotWritten(None, group.group_id)
        if is_changed:
            self.epoch += 1
            self.metadata_hash = known
            value = GroupEpoch(self.epoch, known)
            context.decision.records.append(GroupEpochRecord(group.group_id, value))
            if group.has_subscription_metadata:
                record = SubscriptionMetadataRecord(group.group_id, None)
                context.decision.records.append(record)

    def _match_patterns(self, context: DecisionContext) -> bool:
        """Match new patterns, and all of them after topics were created or deleted, against the
        topics that the member may see. Drop unused patterns. Return whether any changed."""
        used = dict.fromkeys(
            member.metadata.pattern for member in self.members.values() if member.metadata.pattern
        )
        records, group = context.decision.records, self.group
        is_changed = is_refreshed = False
        for pattern in [each for each in self.patterns if each not in used]:
            del self.patterns[pattern]
            records.append(PatternRecord(group.group_id, pattern, None))
            is_changed = True
        may_refresh = context.now_ms - group.patterns_checked_ms >= PATTERNS_CHECKED_AFTER_MS
        for pattern in used:
            known = self.patterns.get(pattern)
            if known is not None and self._is_current(known, context):
                continue
            if self.visible is None or (known is not None and not may_refresh):
                self.has_old_patterns = True
                continue
            topics = matching_topics(pattern, context.topics, self.visible)
            is_refreshed = may_refresh
            if known is None or known.topics != topics:
                value = ResolvedPattern(topics, context.topics.revision, context.now_ms)
                self.patterns[pattern] = value
                records.append(PatternRecord(group.group_id, pattern, value))
                is_changed = True
        if is_refreshed:
            group.patterns_checked_ms = context.now_ms
        if not self.has_old_patterns:
            group.patterns_revision = context.topics.names_revision
            group.patterns_are_old = False
        return is_changed

    def _is_current(self, known: ResolvedPattern, context: DecisionContext) -> bool:
        """Return whether a pattern was matched against the same topics and permissions."""
        matched_at = max(known.metadata_version, self.group.patterns_revision)
        return not self.group.patterns_are_old and matched_at >= context.topics.names_revision

    # ------------------------------------------------------------------------------ assignment

    def assign_if_due(self, context: DecisionContext) -> None:
        """Compute the target assignment for the current group epoch, unless it is too early."""
        group = self.group
        if self.epoch <= self.assignment_epoch:
            return
        age_ms = context.now_ms - group.assignment_timestamp_ms
        if 0 <= age_ms < context.consumer_assignment_interval_ms and len(self.members) > 1:
            return
        assign = ASSIGNORS[self.choose_assignor(context)]
        counts = {
            topic.topic_id: len(topic.partitions)
            for topic in map(
                context.topics.topics.get, topics_of(self.members.values(), self.patterns)
            )
            if topic is not None
        }
        assigned = assign(self._specs(context), counts)
        records = context.decision.records
        for member_id, target in assigned.items():
            if target != self.targets.get(member_id):
                self.targets[member_id] = target
                records.append(TargetRecord(group.group_id, member_id, target))
        self.assignment_epoch = self.epoch
        value = TargetEpoch(self.epoch, context.now_ms)
        records.append(TargetEpochRecord(group.group_id, value))

    def choose_assignor(self, context: DecisionContext) -> str:
        """Return the assignor that most members request; on a tie, the one configured first."""
        names = context.settings.consumer_assignors
        votes = dict.fromkeys(names, 0)
        for member in self.members.values():
            if member.metadata.assignor in votes:
                votes[member.metadata.assignor] += 1
        return max(names, key=lambda name: votes[name])

    def _specs(self, context: DecisionContext) -> dict[str, MemberSpec]:
        known: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
        specs = {}
        for member_id, member in self.members.items():
            metadata = member.metadata
            key = (metadata.topics, metadata.pattern)
            topic_ids = known.get(key)
            if topic_ids is None:
                names = topics_of((member,), self.patterns)
                topic_ids = known[key] = frozenset(
                    topic.topic_id
                    for topic in map(context.topics.topics.get, names)
                    if topic is not None
                )
            target = self.targets.get(member_id, NO_PARTITIONS)
            specs[member_id] = MemberSpec(topic_ids, target, metadata.instance_id)
        return specs

    # --------------------------------------------------------------------------- reconciliation

    def reconcile(
        self, member: ConsumerMember, owned: Assignment | None, context: DecisionContext
    ) -> ConsumerMember:
        """Move a member one step towards its target, and return its new state.

        Args:
            member: The member.
            owned: The partitions that the member reports as owned, or None if it reports nothing.
            context: The context of the decision.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH if the member must rejoin.
        """
        group = self.group

        def is_taken(topic_id: bytes, partition: int) -> bool:
            owner = group.owners.get(topic_id, {}).get(partition)
            return owner is not None and self.renamed.get(owner, owner) != member.member_id

        target = self.targets.get(member.member_id, NO_PARTITIONS)
        moved = reconcile(member, self.assignment_epoch, target, is_taken, owned)
        self.members[member.member_id] = moved
        if moved.current != member.current:
            record = CurrentRecord(group.group_id, member.member_id, moved.current)
            context.decision.records.append(record)
            if moved.classic is None:
                if moved.state == MemberState.UNREVOKED_PARTITIONS:
                    start_revocation_timer(group, moved, context)
                else:
                    context.decision.cancel_timer(revocation_key(group, member.member_id))
        return moved


def remove_members(
    group: ConsumerGroup, members: Iterable[ConsumerMember], context: DecisionContext
) -> None:
    """Remove members. Their partitions go to the others with the next heartbeats."""
    plan = Plan.of(group)
    for member in members:
        plan.drop_member(member.member_id, context)
        cancel_timers(group, member.member_id, context)
    plan.next_epoch_if(True, context)


# ---------------------------------------------------------------------------------------- topics


def matching_topics(pattern: str, view: TopicsView, visible: TopicFilter) -> tuple[str, ...]:
    """Return the names of the visible topics that match the pattern; internal topics never do."""
    compiled = compile_pattern(pattern)
    names = (topic.name for topic in view.topics.values() if not topic.is_internal)
    return tuple(sorted(visible(name for name in names if compiled.matches(name))))


def hash_of_topics(names: Iterable[str], view: TopicsView) -> int:
    """Return a hash of the existing topics and their partition counts, or 0 if none exists.

    It differs from Kafka's hash of the same topics, which costs one rebalance when Kafka takes over
    the group.
    """
    hashed = hashlib.blake2b(digest_size=8)
    is_empty = True
    for name in sorted(names):
        topic = view.topics.get(name)
        if topic is not None:
            is_empty = False
            shape = (len(name), name, topic.topic_id.hex(), len(topic.partitions))
            hashed.update(repr(shape).encode())
    return NO_HASH if is_empty else int.from_bytes(hashed.digest(), "big", signed=True)


def tombstones(group: ConsumerGroup) -> list[ConsumerRecord]:
    """Return the tombstones of all records of the group."""
    group_id = group.group_id
    metadata = (
        [SubscriptionMetadataRecord(group_id, None)] if group.has_subscription_metadata else []
    )
    return [
        *(CurrentRecord(group_id, each, None) for each in group.members),
        *(TargetRecord(group_id, each, None) for each in group.targets),
        TargetEpochRecord(group_id, None),
        *(MemberRecord(group_id, each, None) for each in group.members),
        *(PatternRecord(group_id, each, None) for each in group.patterns),
        *metadata,
        GroupEpochRecord(group_id, None),
    ]
