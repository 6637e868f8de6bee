"""Fetch requests, and what the entries of their responses mean.

The consumer fetches many partitions of a leader at once (`fetcher`); Spark's tasks and readers of a
single log fetch one partition (`fetch_partition`).

Up to version 12, topics are identified by name, which is used if the ID of a topic is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.types import ZERO_UUID, TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.consumer.offsets import CONSUMER, by_leader
from ottla.client.errors import error_for
from ottla.client.metadata import ClusterMetadata
from ottla.wire import rpc
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.fetch import (
        FetchPartitionDict,
        FetchResponse,
        PartitionData,
    )

LAST_VERSION_WITH_NAMES = 12


class FetchLimits(NamedTuple):
    """How much a fetch may return, how long it may wait, and what it may see."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    isolation: int
    rack: str = ""


def request_for(
    offsets: Mapping[TopicPartition, int], limits: FetchLimits, metadata: ClusterMetadata
) -> tuple[Request[FetchResponse], int | None]:
    """Return a request for partitions of one leader, and the last version to use."""
    by_topic: dict[str, list[FetchPartitionDict]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, []).append({
            "partition": partition,
            "current_leader_epoch": metadata.leader_epoch(topic, partition),
            "fetch_offset": offset,
            "partition_max_bytes": limits.partition_max_bytes,
        })  # fmt: skip
    topics = metadata.topics
    ids = {name: topics[name].topic_id if name in topics else ZERO_UUID for name in by_topic}
    request = rpc.fetch(
        replica_id=CONSUMER,
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation,
        topics=[
            {"topic": name, "topic_id": ids[name], "partitions": partitions}
            for name, partitions in by_topic.items()
        ],
        rack_id=limits.rack,
    )
    return request, LAST_VERSION_WITH_NAMES if ZERO_UUID in ids.values() else None


def aborted_transactions(entry: PartitionData, isolation: int) -> list[tuple[int, int]] | None:
    """Return producer ID and first offset of aborted transactions, None for read_uncommitted."""
    if not isolation:
        return None
    return [(each.producer_id, each.first_offset) for each in entry.aborted_transactions or ()]


def note_leader(cluster: Cluster, tp: TopicPartition, entry: PartitionData) -> None:
    """Take over the leader that an entry with an error names (KIP-951)."""
    leader = entry.current_leader
    if leader.leader_id >= 0:
        cluster.set_leader(*tp, leader.leader_id, leader.leader_epoch)


async def fetch_partition(
    cluster: Cluster, tp: TopicPartition, offset: int, limits: FetchLimits
) -> PartitionData:
    """Fetch one partition from its leader, and return its entry in the response.

    Errors are meant for `Cluster.retrying`."""
    leader = next(iter(await by_leader(cluster, [tp])))
    request, max_version = request_for({tp: offset}, limits, cluster.metadata)
    response = await cluster.call(
        request,
        node=leader,
        timeout_ms=cluster.config.request_timeout_ms + limits.max_wait_ms,
        max_version=max_version,
    )
    if response.error_code:
        raise error_for(response.error_code)
    entry = response.responses[0].partitions[0]
    if entry.error_code:
        note_leader(cluster, tp, entry)
        raise error_for(entry.error_code, topic=tp.topic, partition=tp.partition)
    return entry
