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
    asked = {
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
        "topics": [{"topic": tp.topic, "topic_id": topic_id, "partitions": [asked]}],
        "rack_id": rack,
    }
    answer = await cluster.call(
        Api.FETCH,
        body,
        node=leader,
        timeout_ms=cluster.config.request_timeout_ms + max_wait_ms,
        max_version=LAST_VERSION_WITH_NAMES if topic_id == ZERO_UUID else None,
    )
    if answer.error_code:
        raise error_for(answer.error_code)
    told = answer.responses[0].partitions[0]
    if told.error_code:
        leader_now = told.current_leader
        if leader_now.leader_id >= 0:
            cluster.set_leader(*tp, leader_now.leader_id, leader_now.leader_epoch)
        raise error_for(told.error_code, topic=tp.topic, partition=tp.partition)
    return told
