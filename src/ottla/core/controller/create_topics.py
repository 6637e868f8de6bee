"""Validation and placement of new topics.

Topics are decided in request order. The first matching row applies:

| condition | error |
|---|---|
| the topic appears twice in the request | INVALID_REQUEST |
| the request asks for more partitions in total than one request may | POLICY_VIOLATION |
| the name is that of Kafka's metadata log | INVALID_REQUEST |
| the name is illegal, or equals another one except for `.` and `_` | INVALID_TOPIC_EXCEPTION |
| the topic exists | TOPIC_ALREADY_EXISTS |
| a config is unknown, invalid or null | INVALID_CONFIG |
| both an assignment and counts are given | INVALID_REQUEST |
| the assignment does not match the cluster | INVALID_REPLICA_ASSIGNMENT |
| the replication factor is 0, below -1, or above the live brokers | INVALID_REPLICATION_FACTOR |
| the partition count is 0 or below -1 | INVALID_PARTITIONS |

-1 selects the broker's default. Topic ids and random numbers are inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.base.cluster import (
    METADATA_TOPIC,
    ClusterView,
    PartitionState,
    TopicImage,
    has_collision_characters,
    metric_name,
)
from ottla.base.config.broker import BrokerConfig
from ottla.base.config.topic import topic_config
from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.controller.elections import new_partition
from ottla.core.controller.placement import Stripe, assign_replicas, check_manual_assignment
from ottla.core.controller.topic_names import validate_topic_name

MAX_PARTITIONS_PER_REQUEST = 10_000
USE_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic as requested by a client."""

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """(partition, replicas) pairs, given instead of the counts."""
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of a decision other than the cluster's state."""

    config: BrokerConfig
    new_id: Callable[[], bytes]
    draw: Callable[[int], int]
    """Return a random number that is at least 0 and less than the argument."""


@dataclass(frozen=True, slots=True)
class TopicDecision:
    """The topic to create, or the error that prevents it."""

    name: str
    topic: TopicImage | None = None
    error: KafkaError | None = None


def decide_create_topics(
    view: ClusterView, requested: Sequence[NewTopic], inputs: Inputs
) -> list[TopicDecision]:
    """Validate a CreateTopics request and place the replicas of the new topics.

    Args:
        view: The cluster's current metadata.
        requested: The topics to create.
        inputs: The broker's defaults, and the sources of topic ids and random numbers.

    Returns:
        One decision per topic name in the request.
    """
    counts = Counter(new.name for new in requested)
    excessive = _requested_partitions(requested, inputs.config) > MAX_PARTITIONS_PER_REQUEST
    taken: dict[str, str] = {}
    decisions = []
    for new in {new.name: new for new in requested}.values():
        try:
            if counts[new.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if excessive:
                raise too_many_partitions()
            topic = _decide_topic(view, new, inputs, taken)
        except KafkaError as error:
            decisions.append(TopicDecision(new.name, error=error))
        else:
            taken[metric_name(new.name)] = new.name
            decisions.append(TopicDecision(new.name, topic))
    return decisions


def too_many_partitions() -> KafkaError:
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"A request may create at most {MAX_PARTITIONS_PER_REQUEST} partitions.",
    )


def _requested_partitions(requested: Sequence[NewTopic], config: BrokerConfig) -> int:
    return sum(
        len(new.assignments) or _or_default(new.num_partitions, config.num_partitions)
        for new in requested
        if new.num_partitions >= USE_DEFAULT
    )


def _or_default(value: int, default: int) -> int:
    return default if value == USE_DEFAULT else value


def _decide_topic(
    view: ClusterView, new: NewTopic, inputs: Inputs, taken: dict[str, str]
) -> TopicImage:
    _check_name(view, new.name, taken)
    configs = _checked_configs(new, inputs.config)
    if new.assignments:
        partitions = _assigned(view, new)
    else:
        partitions = _placed(view, new, inputs)
    return TopicImage(new.name, inputs.new_id(), configs, partitions)


def _check_name(view: ClusterView, name: str, taken: dict[str, str]) -> None:
    if name == METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Creation of internal topic {name} is prohibited.",
        )
    validate_topic_name(name)
    if has_collision_characters(name):
        other = view.colliding_topic(name) or taken.get(metric_name(name))
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with topic '{other}': metric names do not distinguish "
                "'.' from '_'.",
            )
    if name in view.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _checked_configs(new: NewTopic, config: BrokerConfig) -> dict[str, str]:
    configs = {}
    for name, value in new.configs:
        if value is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Topic config {name} must not be set to null."
            )
        configs[name] = value
    if configs:
        topic_config(config, configs)
    return configs


def _assigned(view: ClusterView, new: NewTopic) -> tuple[PartitionState, ...]:
    if (new.num_partitions, new.replication_factor) != (USE_DEFAULT, USE_DEFAULT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was given, so the number of partitions and the "
            "replication factor must both be -1.",
        )
    known = list(view.brokers.values())
    replicas_of: dict[int, Sequence[int]] = {}
    for partition, replicas in new.assignments:
        if partition in replicas_of:
            raise _invalid_assignment(f"Partition {partition} is assigned more than once.")
        first = next(iter(replicas_of.values()), None)
        check_manual_assignment(replicas, known, None if first is None else len(first))
        replicas_of[partition] = replicas
    if sorted(replicas_of) != list(range(len(replicas_of))):
        raise _invalid_assignment("Partitions must be numbered from 0 without a gap.")
    return tuple(
        new_partition(replicas_of[index], view.brokers) for index in range(len(replicas_of))
    )


def _placed(view: ClusterView, new: NewTopic, inputs: Inputs) -> tuple[PartitionState, ...]:
    if new.replication_factor == 0 or new.replication_factor < USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "The replication factor must be larger than 0, or -1 for the broker's default.",
        )
    if new.num_partitions == 0 or new.num_partitions < USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "The number of partitions must be larger than 0, or -1 for the broker's default.",
        )
    live = view.live_brokers
    count = max(1, len(live))
    assignment = assign_replicas(
        live,
        _or_default(new.num_partitions, inputs.config.num_partitions),
        _or_default(new.replication_factor, inputs.config.default_replication_factor),
        Stripe(inputs.draw(count), inputs.draw(count)),
    )
    return tuple(new_partition(replicas, view.brokers) for replicas in assignment)


def _invalid_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
