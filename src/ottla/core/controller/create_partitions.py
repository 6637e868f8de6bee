"""Validation and placement of additional partitions for existing topics.

Existing partitions keep their replicas; new partitions continue the topic's replica stripe.

| condition | error |
|---|---|
| the topic appears twice in the request | INVALID_REQUEST |
| the request adds more partitions in total than one request may | POLICY_VIOLATION |
| the topic does not exist | UNKNOWN_TOPIC_OR_PARTITION |
| the new count is not an increase | INVALID_PARTITIONS |
| the assignments are invalid or do not match the number added | INVALID_REPLICA_ASSIGNMENT |
| the replication factor exceeds the number of live brokers | INVALID_REPLICATION_FACTOR |
"""

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
class PartitionIncrease:
    """A topic and the total number of partitions it should have."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None
    """The replicas of each new partition, or None to let the controller choose them."""


@dataclass(frozen=True, slots=True)
class PartitionsDecision:
    """The partitions to add to a topic, or the error that prevents it."""

    name: str
    topic: TopicImage | None = None
    added: Sequence[PartitionState] = ()
    error: KafkaError | None = None


def decide_create_partitions(
    view: ClusterView, requested: Sequence[PartitionIncrease]
) -> list[PartitionsDecision]:
    """Validate a CreatePartitions request and place the new partitions.

    Args:
        view: The cluster's current metadata.
        requested: The topics to extend, with their new partition counts.

    Returns:
        One decision per topic, with either the states of the added partitions or an error.
    """
    counts = Counter(more.name for more in requested)
    excessive = _total_added(view, requested) > MAX_PARTITIONS_PER_REQUEST
    decisions = []
    for increase in {more.name: more for more in requested}.values():
        try:
            if counts[increase.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if excessive:
                raise too_many_partitions()
            topic, added = _decide_topic(view, increase)
        except KafkaError as error:
            decisions.append(PartitionsDecision(increase.name, error=error))
        else:
            decisions.append(PartitionsDecision(increase.name, topic, added))
    return decisions


def _total_added(view: ClusterView, requested: Sequence[PartitionIncrease]) -> int:
    return sum(
        max(0, increase.count - len(view.topics[increase.name].partitions))
        for increase in requested
        if increase.name in view.topics
    )


def _decide_topic(
    view: ClusterView, increase: PartitionIncrease
) -> tuple[TopicImage, Sequence[PartitionState]]:
    topic = view.topics.get(increase.name)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{increase.name}' does not exist."
        )
    present = len(topic.partitions)
    if increase.count <= present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{increase.name}' has {present} partition(s); {increase.count} would not be an "
            f"increase.",
        )
    if increase.assignments is None:
        assignment = _placed(view, topic, increase.count)
    else:
        assignment = _assigned(view, topic, increase.count, increase.assignments)
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
            f"The request adds {added} partition(s), but {len(assignments)} assignment(s) were "
            "specified.",
        )
    known = list(view.brokers.values())
    for replicas in assignments:
        check_manual_assignment(replicas, known, topic.replication_factor)
    return assignments
