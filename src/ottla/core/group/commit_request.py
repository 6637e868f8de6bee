"""The topics of an offset commit that can be committed, and the results of the others.

OffsetCommit and TxnOffsetCommit commit the offsets of existing partitions even if the request has
others, or topics that the client may not read, which only fail themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.base.cluster import TopicImage
from ottla.base.errors import ErrorCode
from ottla.core.group.events import CommitPartition, CommitTopic

if TYPE_CHECKING:
    from ottla.wire.messages.offset_commit import (
        OffsetCommitResponsePartitionDict,
        OffsetCommitResponseTopicDict,
    )


class RequestedPartition(Protocol):
    """A partition in a request."""

    @property
    def partition_index(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...

    @property
    def committed_leader_epoch(self) -> int: ...

    @property
    def committed_metadata(self) -> str | None: ...


class RequestedTopic(NamedTuple):
    """A topic in a request."""

    name: str
    """Name in the request; empty if the request has the ID."""
    topic_id: bytes
    image: TopicImage | None
    """The topic, or None if it does not exist."""
    partitions: Sequence[RequestedPartition]
    is_denied: bool = False
    """Whether the client may not read the topic, which then fails whether it exists or not."""


def split_known(
    requested: Iterable[RequestedTopic], missing_topic: ErrorCode
) -> tuple[list[CommitTopic], list[OffsetCommitResponseTopicDict]]:
    """Return the topics to commit, and the results of those that do not exist or are denied.

    Args:
        requested: The topics of the request.
        missing_topic: Error for the partitions of a topic that does not exist.
    """
    topics: list[CommitTopic] = []
    refused: list[OffsetCommitResponseTopicDict] = []
    for name, topic_id, image, partitions, is_denied in requested:
        if is_denied or image is None:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else missing_topic
            results = _failed_partitions(partitions, code)
            refused.append({"name": name, "topic_id": topic_id, "partitions": results})
            continue
        count = len(image.partitions)
        known = [
            CommitPartition(
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata,
            )
            for each in partitions
            if 0 <= each.partition_index < count
        ]
        if len(known) < len(partitions):
            unknown = [each for each in partitions if not 0 <= each.partition_index < count]
            results = _failed_partitions(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            refused.append({"name": image.name, "topic_id": image.topic_id, "partitions": results})
        if known:
            topics.append(CommitTopic(image.name, image.topic_id, known))
    return topics, refused


def _failed_partitions(
    partitions: Iterable[RequestedPartition], code: int
) -> list[OffsetCommitResponsePartitionDict]:
    """Return the results of partitions that all have the same error."""
    return [{"partition_index": each.partition_index, "error_code": code} for each in partitions]


def merge_results(
    refused: Iterable[OffsetCommitResponseTopicDict],
    committed: Iterable[OffsetCommitResponseTopicDict],
) -> list[OffsetCommitResponseTopicDict]:
    """Merge the results so that each topic occurs once, as clients expect."""
    merged: dict[tuple[str, bytes], OffsetCommitResponseTopicDict] = {}
    for topic in (*refused, *committed):
        key = (topic["name"], topic["topic_id"])
        known = merged.get(key)
        if known is None:
            merged[key] = topic
        else:
            merged[key] = {**known, "partitions": [*known["partitions"], *topic["partitions"]]}
    return list(merged.values())
