"""Validation of topic deletions. A request identifies each topic by name or by id, never by both.

| condition | error |
|---|---|
| `delete.topic.enable` is false | TOPIC_DELETION_DISABLED |
| no name and no id, both, or the same topic twice by name or id | INVALID_REQUEST |
| the name does not exist | UNKNOWN_TOPIC_OR_PARTITION |
| the id does not exist | UNKNOWN_TOPIC_ID |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.cluster import ClusterView, TopicImage
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import ZERO_UUID, format_uuid


class TopicReference(NamedTuple):
    """A topic, identified by name or by id."""

    name: str | None
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True)
class DeleteDecision:
    """The topic to delete, or the error that prevents it."""

    name: str | None
    topic_id: bytes
    topic: TopicImage | None = None
    """The topic to delete."""
    error: KafkaError | None = None


def decide_delete_topics(
    view: ClusterView, references: Sequence[TopicReference], *, enabled: bool
) -> list[DeleteDecision]:
    """Validate a DeleteTopics request.

    Args:
        view: The cluster's current metadata.
        references: The topics to delete.
        enabled: The value of `delete.topic.enable`.

    Returns:
        One decision per distinct reference, with either the topic to delete or an error.
    """
    counts = Counter(references)
    named = {topic.topic_id for ref in references if (topic := view.topics.get(ref.name or ""))}
    decisions = []
    for reference in counts:
        name, topic_id = reference
        try:
            if not enabled:
                raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
            _check_reference(reference, counts[reference], named)
            topic = _find(view, reference)
        except KafkaError as error:
            decisions.append(DeleteDecision(name, topic_id, error=error))
        else:
            decisions.append(DeleteDecision(topic.name, topic.topic_id, topic))
    return decisions


def _check_reference(reference: TopicReference, count: int, named: set[bytes]) -> None:
    name, topic_id = reference
    if name is None and topic_id == ZERO_UUID:
        raise _invalid("Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_UUID:
        raise _invalid("You may not specify both topic name and topic id.")
    if count > 1:
        raise _invalid("Duplicate topic name." if name is not None else "Duplicate topic id.")
    if topic_id in named:
        raise _invalid("The topic with this ID was also specified by name.")


def _find(view: ClusterView, reference: TopicReference) -> TopicImage:
    name, topic_id = reference
    if name is not None:
        if name in view.topics:
            return view.topics[name]
        raise unknown_topic(name)
    if topic_id in view.topics_by_id:
        return view.topics_by_id[topic_id]
    raise unknown_topic_id(topic_id)


def unknown_topic(name: str) -> KafkaError:
    """Return the error for a name that does not exist."""
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")


def unknown_topic_id(topic_id: bytes) -> KafkaError:
    """Return the error for an ID that does not exist."""
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_ID, f"Topic ID {format_uuid(topic_id)} does not exist."
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
