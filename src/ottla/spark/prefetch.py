"""Records that the planner of a stream fetches while it looks for the end of the next batch.

A fetch response contains the end of each partition and the first records up to it. So one Fetch
request answers what ListOffsets would, and if the batch is small, its records as well: they travel
inside the task's partition, and the task does not have to fetch.

A response may be unusable: a partition has a new leader, which may not know the high watermark yet,
or its offsets no longer exist. Then the planner asks with ListOffsets, which waits for the leader
and from which data loss is determined."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.base.errors import KafkaError
from ottla.base.types import TopicPartition
from ottla.client.cluster import Cluster
from ottla.client.consumer.fetch_request import FetchLimits, aborted_transactions, request_for
from ottla.client.consumer.offsets import by_leader
from ottla.client.errors import error_for
from ottla.spark.offsets import Offsets
from ottla.spark.plan import OffsetRange
from ottla.spark.range_reader import FetchedRecords, next_offset

if TYPE_CHECKING:
    from ottla.wire.messages.fetch import PartitionData

logger = logging.getLogger(__name__)

PREFETCH_BYTES = 256 * 1024
"""Maximum size of prefetched records. Larger batches gain nothing: tasks fetch them in parallel."""


class Prefetched(NamedTuple):
    """Response of the leaders: the end of each partition, and records from a position on."""

    positions: Offsets
    ends: Offsets
    records: dict[TopicPartition, FetchedRecords]

    def records_of(self, offset_range: OffsetRange) -> FetchedRecords | None:
        """Return the records of a range, or None unless all of them were fetched."""
        tp = TopicPartition(offset_range.topic, offset_range.partition)
        fetched = self.records.get(tp)
        if (
            fetched is None
            or self.positions[tp] != offset_range.start
            or fetched.next_offset < offset_range.end
        ):
            return None
        return fetched


async def prefetch(
    cluster: Cluster, positions: Mapping[TopicPartition, int], isolation: int
) -> Prefetched | None:
    """Fetch what is there from the given positions on, without waiting for more.

    Returns:
        The ends of all partitions and the first records, or None if a partition has no answer.
    """
    limits = FetchLimits(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=PREFETCH_BYTES,
        partition_max_bytes=PREFETCH_BYTES,
        isolation=isolation,
    )
    try:
        leaders = await by_leader(cluster, positions)
        responses = await asyncio.gather(
            *(
                _fetch(cluster, node, {tp: positions[tp] for tp in tps}, limits)
                for node, tps in leaders.items()
            )
        )
    except KafkaError as error:
        logger.debug("could not prefetch, looking up offsets instead: %s", error)
        return None
    found = Prefetched(dict(positions), {}, {})
    for response in responses:
        for topic, entry in response:
            tp = TopicPartition(topic, entry.partition_index)
            end = entry.last_stable_offset if isolation else entry.high_watermark
            if entry.error_code or end < positions[tp]:
                return None
            found.ends[tp] = end
            _add_records(found, tp, entry, isolation)
    return found if len(found.ends) == len(positions) else None


async def _fetch(
    cluster: Cluster, node: int, positions: Mapping[TopicPartition, int], limits: FetchLimits
) -> list[tuple[str, PartitionData]]:
    """Fetch from one leader; return the topic and the entry of each partition."""
    request, max_version = request_for(positions, limits, cluster.metadata)
    topics = cluster.metadata.topics
    names = {topics[tp.topic].topic_id: tp.topic for tp in positions if tp.topic in topics}
    response = await cluster.call(request, node=node, max_version=max_version)
    if response.error_code:
        raise error_for(response.error_code)
    return [
        (topic.topic or names[topic.topic_id], entry)
        for topic in response.responses
        for entry in topic.partitions
    ]


def _add_records(
    found: Prefetched, tp: TopicPartition, entry: PartitionData, isolation: int
) -> None:
    records = entry.records
    # A first batch that is larger than the limit is returned nevertheless.
    if records and len(records) <= PREFETCH_BYTES:
        aborted = aborted_transactions(entry, isolation)
        end = next_offset(records, found.positions[tp])
        found.records[tp] = FetchedRecords(bytes(records), aborted, end)
