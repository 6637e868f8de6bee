"""Partition reassignment (KIP-455).

    begin      replicas = the target, followed by the replicas to remove; `adding` and `removing`
               distinguish them. Added brokers follow the leader like any other replica
    complete   once all added replicas are in the ISR and a replica of the target can lead:
               replicas = the target, and the removed replicas leave the ISR
    cancel     the added replicas are removed again
    replace    a new target replaces the current one; replicas being added that are not in the new
               target are removed at once

The leader stays, unless it is not in the target: then the first eligible replica of the target
becomes leader in a new leader epoch. A target that only reorders or removes replicas is complete at
once. The first replica of the target is the preferred leader.

All functions are pure. A new state's `partition_epoch` is that of the state it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.cluster import ClusterView, PartitionState, TopicImage
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.core.controller.elections import Brokers, LeadershipChange, incarnation_in_isr
from ottla.core.controller.placement import check_manual_assignment


class ReassignmentRequest(NamedTuple):
    """A requested reassignment of one partition, or its cancellation."""

    partition: TopicPartition
    target: Sequence[int] | None
    """The new replicas, the preferred leader first; None cancels the current reassignment."""


@dataclass(frozen=True, slots=True)
class ReassignmentDecision:
    """The new state of a partition, or the error that prevents the reassignment."""

    partition: TopicPartition
    topic: TopicImage | None = None
    state: PartitionState | None = None
    """The new state. None without an error: the partition is already in the requested state."""
    error: KafkaError | None = None


def decide_reassignments(
    view: ClusterView,
    brokers: Brokers,
    requested: Iterable[ReassignmentRequest],
    *,
    may_change_factor: bool = True,
) -> list[ReassignmentDecision]:
    """Decide an AlterPartitionReassignments request.

    Args:
        view: The cluster's current metadata.
        brokers: The brokers' status.
        requested: The requested reassignments. The last one for a partition applies.
        may_change_factor: Whether the target may have another number of replicas (KIP-860).

    Returns:
        One decision per partition.
    """
    decisions = []
    for request in {each.partition: each for each in requested}.values():
        try:
            topic, state = _find(view, request.partition)
            if request.target is None:
                new = cancelled(state, brokers)
            else:
                _check_target(view, state, request.target, may_change_factor)
                new = begun(state, tuple(request.target), brokers)
        except KafkaError as error:
            decisions.append(ReassignmentDecision(request.partition, error=error))
        else:
            changed = None if new == state else new
            decisions.append(ReassignmentDecision(request.partition, topic, changed))
    return decisions


def decide_completions(topics: Iterable[TopicImage], brokers: Brokers) -> list[LeadershipChange]:
    """Return the final states of all reassignments that can be completed."""
    return [
        LeadershipChange(topic, index, new)
        for topic in topics
        for index, state in enumerate(topic.partitions)
        if (state.adding or state.removing) and (new := completed(state, brokers)) is not None
    ]


def begun(state: PartitionState, target: tuple[int, ...], brokers: Brokers) -> PartitionState:
    original = original_replicas(state)
    adding = tuple(each for each in target if each not in original)
    removing = tuple(each for each in original if each not in target)
    dropped = [each for each in state.adding if each not in target]
    moved = _without(state, dropped, brokers)
    moved = moved._replace(replicas=target + removing, adding=adding, removing=removing)
    return completed(moved, brokers) or moved


def completed(state: PartitionState, brokers: Brokers) -> PartitionState | None:
    """Return the state after the reassignment, or None if it cannot be completed yet."""
    if not set(state.adding) <= set(state.isr):
        return None
    target = tuple(each for each in state.replicas if each not in state.removing)
    if not set(target) & set(state.isr):
        return None
    try:
        new = _without(state, state.removing, brokers)
    except KafkaError:
        return None
    return new._replace(replicas=target, adding=(), removing=())


def cancelled(state: PartitionState, brokers: Brokers) -> PartitionState:
    """Return the state after cancelling the reassignment.

    Raises:
        KafkaError: No reassignment is in progress, or only replicas being added could lead.
    """
    if not state.adding and not state.removing:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    new = _without(state, state.adding, brokers)
    return new._replace(replicas=original_replicas(state), adding=(), removing=())


def original_replicas(state: PartitionState) -> tuple[int, ...]:
    """Return the replicas to which a cancelled reassignment returns."""
    return tuple(each for each in state.replicas if each not in state.adding)


def _without(state: PartitionState, leaving: Sequence[int], brokers: Brokers) -> PartitionState:
    """Remove replicas from a partition, electing a new leader if the leader is among them.

    Raises:
        KafkaError: No remaining replica is in sync, or none can lead.
    """
    if not leaving:
        return state
    isr = [member for member in state.isr if member not in leaving]
    if state.isr and not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "None of the remaining replicas is in the ISR.",
        )
    kept = state._replace(
        replicas=tuple(each for each in state.replicas if each not in leaving),
        isr=tuple(isr),
        isr_incarnations=tuple(incarnation_in_isr(state, member) for member in isr),
    )
    if state.leader not in leaving:
        return kept
    eligible = [
        each
        for each in kept.replicas
        if each in isr and brokers.has_returned(each, incarnation_in_isr(state, each))
    ]
    if not eligible:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "None of the remaining replicas can become the leader.",
        )
    leader = next((each for each in eligible if each not in brokers.draining), eligible[0])
    return kept._replace(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=tuple(eligible),
        isr_incarnations=tuple(brokers.registrations[each].incarnation for each in eligible),
    )


def _find(view: ClusterView, key: TopicPartition) -> tuple[TopicImage, PartitionState]:
    topic = view.topics.get(key.topic)
    if topic is None or not 0 <= key.partition < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {key} does not exist.")
    return topic, topic.partitions[key.partition]


def _check_target(
    view: ClusterView, state: PartitionState, target: Sequence[int], may_change_factor: bool
) -> None:
    check_manual_assignment(target, list(view.brokers.values()), None)
    present = len(original_replicas(state))
    if not may_change_factor and len(target) != present:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The reassignment would change the replication factor from {present} to "
            f"{len(target)}.",
        )
