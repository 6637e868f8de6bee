"""How topics get more partitions. Existing ones stay as they are; new ones continue the stripe.

| the request | answer |
|---|---|
| names the topic twice | INVALID_REQUEST |
| adds more partitions, in sum, than one request may | POLICY_VIOLATION |
| an unknown topic | UNKNOWN_TOPIC_OR_PARTITION |
| a count that is no increase | INVALID_PARTITIONS |
| assignments that are not one for each new partition, or do not fit | INVALID_REPLICA_ASSIGNMENT |
| a topic replicated more often than brokers are alive | INVALID_REPLICATION_FACTOR |"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.base.cluster import ClusterView, PartitionState, TopicImage
from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.controller.create_topics import MAX_PARTITIONS_PER_REQUEST, too_many_partitions
from ottla.core.controller.elections import new_partition
from ottla.core.controller.placement import Stripe, assign_replicas, check_manual_assignment


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic and how many partitions it shall have, as a client asks for it."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None
    """The replicas of each new partition; None: chosen by the controller."""


@dataclass(frozen=True, slots=True)
class PartitionsDecision:
    name: str
    topic: TopicImage | None = None
    added: Sequence[PartitionState] = ()
    error: KafkaError | None = None


def decide_create_partitions(
    view: ClusterView, requested: Sequence[MorePartitions]
) -> list[PartitionsDecision]:
    counts = Counter(more.name for more in requested)
    excessive = _added_in_sum(view, requested) > MAX_PARTITIONS_PER_REQUEST
    decisions = []
    for more in {more.name: more for more in requested}.values():
        try:
            if counts[more.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if excessive:
                raise too_many_partitions()
            topic, added = _decide_topic(view, more)
        except KafkaError as error:
            decisions.append(PartitionsDecision(more.name, error=error))
        else:
            decisions.append(PartitionsDecision(more.name, topic, added))
    return decisions


def _added_in_sum(view: ClusterView, requested: Sequence[MorePartitions]) -> int:
    return sum(
        max(0, more.count - len(view.topics[more.name].partitions))
        for more in requested
        if more.name in view.topics
    )


def _decide_topic(
    view: ClusterView, more: MorePartitions
) -> tuple[TopicImage, Sequence[PartitionState]]:
    topic = view.topics.get(more.name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{more.name}' does not exist."
        )
    present = len(topic.partitions)
    if more.count <= present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{more.name}' has {present} partition(s); {more.count} would not be an "
            f"increase.",
        )
    if more.assignments is None:
        assignment = _placed(view, topic, more.count)
    else:
        assignment = _assigned(view, topic, more.count, more.assignments)
    return topic, [new_partition(replicas, view.brokers) for replicas in assignment]


def _placed(view: ClusterView, topic: TopicImage, count: int) -> Sequence[Sequence[int]]:
    live = view.live_brokers
    first = topic.partitions[0].replicas[0]
    ids = [broker.id for broker in live]
    start = ids.index(first) if first in ids else 0
    present = len(topic.partitions)
    return assign_replicas(
        live, count - present, topic.replication_factor, Stripe(start, start), present
    )


def _assigned(
    view: ClusterView, topic: TopicImage, count: int, assignments: Sequence[Sequence[int]]
) -> Sequence[Sequence[int]]:
    added = count - len(topic.partitions)
    if len(assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{added} partition(s) are to be added, but {len(assignments)} assignment(s) were "
            f"given.",
        )
    known = list(view.brokers.values())
    for replicas in assignments:
        check_manual_assignment(replicas, known, topic.replication_factor)
    return assignments
