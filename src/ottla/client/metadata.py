"""Immutable snapshots of the cluster's metadata; each Metadata response yields a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.base.types import ZERO_UUID

if TYPE_CHECKING:
    from ottla.wire.messages.metadata import (
        MetadataResponse,
        MetadataResponseBroker,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )


class Node(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class PartitionMetadata(NamedTuple):
    partition: int
    leader: int
    """Broker ID, or -1 if the partition has no leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]
    """All partitions, ordered by number."""
    available: tuple[int, ...] = ()
    """Numbers of the partitions that have a leader."""

    @property
    def partition_count(self) -> int:
        return len(self.partitions)


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    cluster_id: str | None = None
    controller_id: int = -1
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    names_by_id: Mapping[bytes, str] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    """Error codes of requested topics that the response did not describe, by topic name."""

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader's broker ID, or -1 if it is unknown."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return -1
        return known.partitions[partition].leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return -1
        return known.partitions[partition].leader_epoch

    def updated(self, response: MetadataResponse, *, is_complete: bool) -> ClusterMetadata:
        """Return a copy updated from a Metadata response.

        Args:
            response: The Metadata response.
            is_complete: Whether it covers all topics. If not, topics that it does not mention are
                kept.
        """
        topics = {} if is_complete else dict(self.topics)
        errors = {} if is_complete else dict(self.errors)
        for entry in response.topics:
            name = entry.name
            if name is None:
                continue
            if entry.error_code and entry.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                topics.pop(name, None)
                errors[name] = entry.error_code
            else:
                errors.pop(name, None)
                topics[name] = _topic(name, entry, self.topics.get(name))
        nodes = {node.node_id: _node(node) for node in response.brokers}
        return replace(
            self,
            cluster_id=response.cluster_id or self.cluster_id,
            controller_id=response.controller_id,
            nodes=nodes or self.nodes,
            topics=topics,
            names_by_id={
                topic.topic_id: name
                for name, topic in topics.items()
                if topic.topic_id != ZERO_UUID
            },
            errors=errors,
        )

    def with_leader(
        self, topic: str, partition: int, leader: int, leader_epoch: int
    ) -> ClusterMetadata:
        """Return a copy with a newer leader, as reported by the former leader (KIP-951)."""
        known = self.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            return self
        before = known.partitions[partition]
        if leader_epoch <= before.leader_epoch or leader not in self.nodes:
            return self
        partitions = list(known.partitions)
        partitions[partition] = before._replace(leader=leader, leader_epoch=leader_epoch)
        changed = replace(
            known, partitions=tuple(partitions), available=_available(tuple(partitions))
        )
        return replace(self, topics={**self.topics, topic: changed})


def _topic(name: str, entry: MetadataResponseTopic, before: TopicMetadata | None) -> TopicMetadata:
    same = before is not None and before.topic_id == entry.topic_id
    partitions = []
    for partition in sorted(entry.partitions, key=lambda each: int(each.partition_index)):
        new = _partition(partition)
        if same and before is not None and new.partition < len(before.partitions):
            old = before.partitions[new.partition]
            # A broker that lags behind must not replace a newer leader epoch with an older one.
            if 0 <= new.leader_epoch < old.leader_epoch:
                new = old
        partitions.append(new)
    found = tuple(partitions)
    return TopicMetadata(name, entry.topic_id, entry.is_internal, found, _available(found))


def _partition(entry: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        entry.partition_index,
        entry.leader_id,
        entry.leader_epoch,
        tuple(entry.replica_nodes),
        tuple(entry.isr_nodes),
        tuple(entry.offline_replicas),
        entry.error_code,
    )


def _available(partitions: tuple[PartitionMetadata, ...]) -> tuple[int, ...]:
    return tuple(each.partition for each in partitions if each.leader >= 0)


def _node(entry: MetadataResponseBroker) -> Node:
    return Node(entry.node_id, entry.host, entry.port, entry.rack)
