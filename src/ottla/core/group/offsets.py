"""Committing, fetching, deleting and expiring offsets.

Clients that may commit
- a member of the current generation, unless the group waits for its leader's assignment
  (REBALANCE_IN_PROGRESS: the client must rejoin first);
- a member of a consumer group in its current member epoch (STALE_MEMBER_EPOCH: the client must
  obtain the current one with a heartbeat);
- any client without member id and generation, while the group has no members. Consumers that assign
  partitions themselves, and administrators, commit like this; the commit creates the group;
- in a transaction, any client without member id and generation at any time, because old producers
  have neither. Members may then commit while the group waits for its assignment, too.

Offsets expire `offsets.retention.minutes` after
- the last commit, in a group that only commits offsets;
- the group became empty or, if that time is not known, the last commit;
- the last commit, for topics that a stable group of consumers, or a group of the consumer protocol
  in any state, does not subscribe to.
An offset with its own expiry time expires at that time. Offsets of other groups do not expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import ZERO_UUID
from ottla.core.coordinator import Decision
from ottla.core.group.classic import ClassicGroup, GroupState
from ottla.core.group.consumer_group import ConsumerGroup, ConsumerMember
from ottla.core.group.context import DecisionContext
from ottla.core.group.events import (
    CommitPartition,
    CommitRequested,
    OffsetDeleteRequested,
    OffsetsRequested,
    TopicDeleted,
)
from ottla.core.group.offset_store import OffsetStore
from ottla.core.group.rebalance import restart_session
from ottla.core.group.records import NO_EPOCH, NO_TIMESTAMP, CommittedOffset, OffsetRecord
from ottla.core.group.registry import Group

if TYPE_CHECKING:
    from ottla.wire.messages.offset_commit import (
        OffsetCommitResponseDict,
        OffsetCommitResponsePartitionDict,
        OffsetCommitResponseTopicDict,
    )
    from ottla.wire.messages.offset_delete import (
        OffsetDeleteResponseDict,
        OffsetDeleteResponsePartitionDict,
        OffsetDeleteResponseTopicDict,
    )
    from ottla.wire.messages.offset_fetch import (
        OffsetFetchResponseGroupDict,
        OffsetFetchResponsePartitionsDict,
        OffsetFetchResponseTopicsDict,
    )

NO_OFFSET = -1
USE_BROKER_RETENTION = -1
LAST_TIMESTAMP = 2**63 - 1

# -------------------------------------------------------------------------------------- committing


def commit(group: Group | None, event: CommitRequested, context: DecisionContext) -> None:
    try:
        _check_commit(group, event, context)
    except KafkaError as error:
        context.decision.respond(event.token, commit_error(event, error.code))
        return
    now_ms = context.now_ms
    longest = context.settings.offset_metadata_max_bytes
    expires = NO_TIMESTAMP
    if event.retention_ms != USE_BROKER_RETENTION:
        expires = min(now_ms + event.retention_ms, LAST_TIMESTAMP)
    records = context.decision.records
    context.decision.producer = event.producer
    topics: list[OffsetCommitResponseTopicDict] = []
    for name, topic_id, wanted in event.topics:
        partitions: list[OffsetCommitResponsePartitionDict] = []
        for partition, offset, leader_epoch, metadata in wanted:
            code = ErrorCode.NONE
            if metadata is not None and len(metadata) > longest:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = CommittedOffset(
                    offset, leader_epoch, metadata or "", now_ms, expires, topic_id
                )
                records.append(OffsetRecord(event.group_id, name, partition, value))
            partitions.append({"partition_index": partition, "error_code": code})
        topics.append({"name": name, "topic_id": topic_id, "partitions": partitions})
    body: OffsetCommitResponseDict = {"topics": topics}
    context.decision.respond(event.token, body)


def _check_commit(group: Group | None, event: CommitRequested, context: DecisionContext) -> None:
    """Check that the client may commit.

    Raises:
        KafkaError: The client may not commit, or must rejoin first.
    """
    if group is None:
        if event.generation < 0:
            return
        if event.knows_group_not_found and event.producer is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if isinstance(group, ConsumerGroup):
        _check_consumer_commit(group, event)
    else:
        _check_classic_commit(group, event, context)


def _check_consumer_commit(group: ConsumerGroup, event: CommitRequested) -> None:
    if event.generation < 0 and not group.members:
        return
    in_transaction = event.producer is not None
    has_no_member_id = event.generation < 0 and not event.member_id and event.instance_id is None
    if in_transaction and has_no_member_id:
        return
    member = group.member(event.member_id)
    if not in_transaction and member.classic is None and not event.knows_member_epochs:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group "
            "protocol.",
        )
    try:
        _check_epoch(member, event.generation)
    except KafkaError:
        if in_transaction:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION) from None
        raise


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch != member.epoch:
        is_classic = member.classic is not None
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH,
            f"The received member epoch {epoch} does not match the expected member epoch "
            f"{member.epoch}.",
        )


def _check_classic_commit(
    group: ClassicGroup, event: CommitRequested, context: DecisionContext
) -> None:
    # A commit counts as a heartbeat: it restarts the session.
    if group.state is GroupState.EMPTY and event.generation < 0:
        return
    if event.generation < 0 and not event.member_id and event.instance_id is None:
        if event.producer is not None:
            return
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    member = group.check_member(event.member_id, event.instance_id)
    if event.generation != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    if event.producer is not None:
        return
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    restart_session(group, member, context)


def commit_error(event: CommitRequested, code: ErrorCode) -> OffsetCommitResponseDict:
    """Return a response body with the same error for all partitions of the request."""
    return {
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [_committed(each, code) for each in topic.partitions],
            }
            for topic in event.topics
        ]
    }


def _committed(committed: CommitPartition, code: ErrorCode) -> OffsetCommitResponsePartitionDict:
    return {"partition_index": committed.partition, "error_code": code}


# ---------------------------------------------------------------------------------------- fetching


def fetch(
    store: OffsetStore, group: Group | None, event: OffsetsRequested, decision: Decision
) -> None:
    """Answer an OffsetFetch.

    An unknown group has no offsets, which is not an error. A member of a consumer group that sends
    a member epoch must send the current one.
    """
    try:
        if isinstance(group, ConsumerGroup) and not (
            event.member_id is None and event.member_epoch < 0
        ):
            _check_epoch(group.member(event.member_id or ""), event.member_epoch)
    except KafkaError as error:
        failed: OffsetFetchResponseGroupDict = {
            "group_id": event.group_id,
            "error_code": error.code,
            "topics": [],
        }
        decision.respond(event.token, failed)
        return
    known = store.topics(event.group_id)

    def is_unstable(topic: str, partition: int) -> bool:
        return event.require_stable and store.is_pending(event.group_id, topic, partition)

    topics: list[OffsetFetchResponseTopicsDict] = []
    if event.topics is None:
        for name, offsets in known.items():
            found = [_fetched(name, each, offsets[each], is_unstable) for each in offsets]
            topics.append({"name": name, "partitions": found})
    else:
        for name, partitions, topic_id in event.topics:
            offsets = known.get(name, {})
            found = [
                _fetched(name, each, _valid(offsets.get(each), topic_id), is_unstable)
                for each in partitions
            ]
            topics.append({"name": name, "topic_id": topic_id, "partitions": found})
    body: OffsetFetchResponseGroupDict = {"group_id": event.group_id, "topics": topics}
    decision.respond(event.token, body)


def _valid(value: CommittedOffset | None, topic_id: bytes) -> CommittedOffset | None:
    """Return the offset, or None if it was committed for a deleted topic of the same name."""
    if value is None or ZERO_UUID in (topic_id, value.topic_id) or value.topic_id == topic_id:
        return value
    return None


def _fetched(
    topic: str,
    partition: int,
    value: CommittedOffset | None,
    is_unstable: Callable[[str, int], bool],
) -> OffsetFetchResponsePartitionsDict:
    if is_unstable(topic, partition):
        return no_offset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if value is None:
        return no_offset(partition)
    return {
        "partition_index": partition,
        "committed_offset": value.offset,
        "committed_leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "error_code": ErrorCode.NONE,
    }


def no_offset(
    partition: int, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitionsDict:
    """Return a partition's part of the response if it has no committed offset, or an error."""
    return {
        "partition_index": partition,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_EPOCH,
        "metadata": "",
        "error_code": code,
    }


# ---------------------------------------------------------------------------------------- removing


def delete(
    store: OffsetStore, group: Group | None, event: OffsetDeleteRequested, decision: Decision
) -> None:
    if group is None:
        decision.respond(event.token, _not_deleted(ErrorCode.GROUP_ID_NOT_FOUND))
        return
    if (
        isinstance(group, ClassicGroup)
        and group.state is not GroupState.EMPTY
        and not group.uses_consumer_protocol
    ):
        decision.respond(event.token, _not_deleted(ErrorCode.NON_EMPTY_GROUP))
        return
    topics: list[OffsetDeleteResponseTopicDict] = []
    for topic, partitions in event.topics:
        code = ErrorCode.NONE
        if group.is_subscribed_to(topic):
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            _add_tombstones(store, event.group_id, topic, partitions, decision)
        responses: list[OffsetDeleteResponsePartitionDict] = [
            {"partition_index": each, "error_code": code} for each in partitions
        ]
        topics.append({"name": topic, "partitions": responses})
    body: OffsetDeleteResponseDict = {"error_code": ErrorCode.NONE, "topics": topics}
    decision.respond(event.token, body)


def _not_deleted(code: ErrorCode) -> OffsetDeleteResponseDict:
    return {"error_code": code, "topics": []}


def _add_tombstones(
    store: OffsetStore, group_id: str, topic: str, partitions: Iterable[int], decision: Decision
) -> None:
    known = store.topics(group_id).get(topic, {})
    for partition in partitions:
        if partition in known or store.is_pending(group_id, topic, partition):
            decision.records.append(OffsetRecord(group_id, topic, partition, None))


def delete_all(store: OffsetStore, group_id: str, decision: Decision) -> None:
    for topic, partition in store.with_pending(group_id):
        decision.records.append(OffsetRecord(group_id, topic, partition, None))


def forget_topic(store: OffsetStore, event: TopicDeleted, decision: Decision) -> None:
    """Delete the offsets of a deleted topic, but not those of a new topic of the same name."""
    for group_id in store.group_ids():
        for partition, value in store.topics(group_id).get(event.topic, {}).items():
            if _valid(value, event.topic_id) is not None:
                decision.records.append(OffsetRecord(group_id, event.topic, partition, None))


def expire(store: OffsetStore, group: Group, context: DecisionContext) -> bool:
    """Delete the expired offsets of a group; return whether none is left."""
    topics = store.topics(group.group_id)
    if not topics:
        return not store.has_pending(group.group_id)
    since = _retention_start(group)
    if since is None:
        return False
    nothing_left = True
    for topic, partitions in topics.items():
        is_subscribed = group.is_subscribed_to(topic)
        for partition, value in partitions.items():
            if (
                is_subscribed
                or not _is_expired(value, since, context)
                or store.is_pending(group.group_id, topic, partition)
            ):
                nothing_left = False
            else:
                record = OffsetRecord(group.group_id, topic, partition, None)
                context.decision.records.append(record)
    return nothing_left and not store.has_pending(group.group_id)


def _retention_start(group: Group) -> Callable[[CommittedOffset], int] | None:
    """Return a function from an offset to the start of its retention; None if none expires."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return lambda value: value.commit_timestamp_ms
    if group.state is GroupState.EMPTY:
        emptied_ms = group.state_timestamp_ms
        if emptied_ms is not None:
            return lambda value: emptied_ms
        return lambda value: value.commit_timestamp_ms
    if group.state is GroupState.STABLE and group.uses_consumer_protocol:
        if group.subscribed_topics is None:
            return None
        return lambda value: value.commit_timestamp_ms
    return None


def _is_expired(
    value: CommittedOffset, since: Callable[[CommittedOffset], int], context: DecisionContext
) -> bool:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return context.now_ms >= value.expire_timestamp_ms
    return context.now_ms - since(value) >= context.settings.offsets_retention_ms
