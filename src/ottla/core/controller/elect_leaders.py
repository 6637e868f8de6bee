"""Leader elections requested by an administrator (ElectLeaders, KIP-460).

preferred   the first replica becomes leader     ELECTION_NOT_NEEDED if it already leads,
                                                 PREFERRED_LEADER_NOT_AVAILABLE if it cannot lead
unclean     a partition without a leader gets    ELECTION_NOT_NEEDED if it has a leader,
            one, even one that lacks records     ELIGIBLE_LEADERS_NOT_AVAILABLE if no replica
                                                 is alive
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.base.cluster import (
    NO_LEADER,
    ClusterView,
    ElectionType,
    PartitionState,
    TopicImage,
)
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.core.controller.elections import Brokers, elect, prefer_leader


@dataclass(frozen=True, slots=True)
class ElectionDecision:
    """The new state of a partition, or the error that prevents the election."""

    partition: TopicPartition
    topic: TopicImage | None = None
    state: PartitionState | None = None
    error: KafkaError | None = None


def decide_elections(
    view: ClusterView,
    brokers: Brokers,
    kind: ElectionType,
    partitions: Iterable[TopicPartition] | None,
) -> list[ElectionDecision]:
    """Decide an ElectLeaders request.

    Args:
        view: The cluster's current metadata.
        brokers: The brokers that can take part in the elections.
        kind: Whether to elect preferred leaders, or any live replica.
        partitions: The partitions to elect leaders for, or None for all of them.

    Returns:
        One decision per partition. If `partitions` is None, partitions that need no election are
        left out.
    """
    if partitions is not None:
        return [_decide(view, brokers, kind, key) for key in dict.fromkeys(partitions)]
    every = [
        _decide(view, brokers, kind, TopicPartition(topic.name, index))
        for topic in view.topics.values()
        for index in range(len(topic.partitions))
    ]
    return [
        each
        for each in every
        if each.error is None or each.error.code != ErrorCode.ELECTION_NOT_NEEDED
    ]


def _decide(
    view: ClusterView, brokers: Brokers, kind: ElectionType, key: TopicPartition
) -> ElectionDecision:
    topic = view.topics.get(key.topic)
    if topic is None or not 0 <= key.partition < len(topic.partitions):
        error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {key} does not exist.")
        return ElectionDecision(key, error=error)
    state = topic.partitions[key.partition]
    try:
        new = _preferred(state, brokers) if kind is ElectionType.PREFERRED else _any(state, brokers)
    except KafkaError as error:
        return ElectionDecision(key, topic, error=error)
    return ElectionDecision(key, topic, new)


def _preferred(state: PartitionState, brokers: Brokers) -> PartitionState:
    if state.leader == state.replicas[0]:
        raise KafkaError(
            ErrorCode.ELECTION_NOT_NEEDED, "The preferred replica is already the leader."
        )
    new = prefer_leader(state, brokers)
    if new is None:
        raise KafkaError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"The preferred replica {state.replicas[0]} is not in the ISR or is not available.",
        )
    return new


def _any(state: PartitionState, brokers: Brokers) -> PartitionState:
    if state.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "The partition already has a leader.")
    new = elect(state, brokers, lambda: True)
    if new is None or new.leader == NO_LEADER:
        raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica is available.")
    return new
