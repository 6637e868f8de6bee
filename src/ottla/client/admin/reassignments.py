"""Reassignment of replicas to other brokers.

AlterPartitionReassignments 0+, ListPartitionReassignments 0+, both to the controller"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.types import TopicPartition, partitions_by_topic
from ottla.client.admin.dispatch import Results, raise_for
from ottla.client.cluster import Cluster
from ottla.client.errors import error_for
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsResponse,
        ReassignablePartitionDict,
    )
    from ottla.wire.messages.list_partition_reassignments import (
        ListPartitionReassignmentsResponse,
    )

KIP_860_VERSION = 1


class Reassignment(NamedTuple):
    """Reassignment in progress."""

    replicas: tuple[int, ...]
    """Current replicas, including those that are being added or removed."""
    adding: tuple[int, ...]
    """Replicas that are being added."""
    removing: tuple[int, ...]
    """Replicas that are being removed."""

    @property
    def target(self) -> tuple[int, ...]:
        """Replicas at the end of the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)


async def alter_reassignments(
    cluster: Cluster,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    may_change_factor: bool,
) -> Results[TopicPartition, None]:
    """Start reassignments, or cancel those whose target is None."""
    topics: dict[str, list[ReassignablePartitionDict]] = {}
    for key, target in targets.items():
        replicas = None if target is None else list(target)
        topics.setdefault(key.topic, []).append(
            {"partition_index": key.partition, "replicas": replicas}
        )
    request = rpc.alter_partition_reassignments(
        timeout_ms=cluster.config.request_timeout_ms,
        allow_replication_factor_change=may_change_factor,
        topics=[{"name": name, "partitions": each} for name, each in topics.items()],
    )
    # A broker that does not support the flag would silently ignore it.
    oldest = 0 if may_change_factor else KIP_860_VERSION

    async def ask() -> AlterPartitionReassignmentsResponse:
        response = await cluster.call_controller(request, min_version=oldest)
        raise_for(response.error_code, response.error_message)
        return response

    response = await cluster.retrying(ask, what="reassigning partitions")
    results: Results[TopicPartition, None] = Results()
    for topic in response.responses:
        for entry in topic.partitions:
            key = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                results.errors[key] = error_for(
                    entry.error_code, entry.error_message, topic=key.topic, partition=key.partition
                )
            else:
                results[key] = None
    return results


async def list_reassignments(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in progress, of all partitions if none are given."""
    grouped = None if partitions is None else partitions_by_topic(partitions)
    request = rpc.list_partition_reassignments(
        timeout_ms=cluster.config.request_timeout_ms,
        topics=None
        if grouped is None
        else [{"name": name, "partition_indexes": each} for name, each in grouped.items()],
    )

    async def ask() -> ListPartitionReassignmentsResponse:
        response = await cluster.call_controller(request)
        raise_for(response.error_code, response.error_message)
        return response

    response = await cluster.retrying(ask, what="listing reassignments")
    found = {
        TopicPartition(topic.name, entry.partition_index): Reassignment(
            tuple(entry.replicas), tuple(entry.adding_replicas), tuple(entry.removing_replicas)
        )
        for topic in response.topics
        for entry in topic.partitions
    }
    return dict(sorted(found.items()))


__all__ = ["Reassignment", "alter_reassignments", "list_reassignments"]
