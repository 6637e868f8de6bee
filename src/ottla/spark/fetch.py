"""A single fetch of one partition from its leader."""

from __future__ import annotations

from typing import Any

from ottla.base.types import ZERO_UUID, TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.consumer.offsets import by_leader
from ottla.client.errors import error_for
from ottla.wire.api import Api

LAST_VERSION_WITH_NAMES = 12


async def fetch_partition(
    cluster: Cluster,
    tp: TopicPartition,
    offset: int,
    *,
    max_bytes: int,
    max_wait_ms: int,
    isolation: int,
    rack: str = "",
) -> Any:
    """Return the partition's part of the response. Errors are meant for `Cluster.retrying`."""
    leader = next(iter(await by_leader(cluster, [tp])))
    topic_id = cluster.metadata.topics[tp.topic].topic_id
    requested = {
        "partition": tp.partition,
        "current_leader_epoch": cluster.metadata.leader_epoch(*tp),
        "fetch_offset": offset,
        "partition_max_bytes": max_bytes,
    }
    body = {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": isolation,
        "topics": [{"topic": tp.topic, "topic_id": topic_id, "partitions": [requested]}],
        "rack_id": rack,
    }
    response = await cluster.call(
        Api.FETCH,
        body,
        node=leader,
        timeout_ms=cluster.config.request_timeout_ms + max_wait_ms,
        max_version=LAST_VERSION_WITH_NAMES if topic_id == ZERO_UUID else None,
    )
    if response.error_code:
        raise error_for(response.error_code)
    partition = response.responses[0].partitions[0]
    if partition.error_code:
        leader_now = partition.current_leader
        if leader_now.leader_id >= 0:
            cluster.set_leader(*tp, leader_now.leader_id, leader_now.leader_epoch)
        raise error_for(partition.error_code, topic=tp.topic, partition=tp.partition)
    return partition
