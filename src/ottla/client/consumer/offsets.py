"""Lookup of offsets by timestamp, and of the ends of partitions, with ListOffsets to each leader.

Also OffsetForLeaderEpoch, which returns the end offset of a leader epoch. A position beyond it was
read from a former leader whose log has been truncated since."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition, partitions_by_topic
from ottla.client.cluster import Cluster
from ottla.client.consumer.record import OffsetAndTimestamp
from ottla.client.errors import ClientError, UnknownTopic, error_for
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages.offset_for_leader_epoch import (
        EpochEndOffset,
        OffsetForLeaderPartitionDict,
    )

CONSUMER = -1
"""Replica ID of a client that is not a replica."""


class OffsetLookup:
    def __init__(self, cluster: Cluster, isolation: int) -> None:
        self._cluster = cluster
        self._isolation = isolation

    async def list(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the first offset at or after each timestamp, or -1 if there is none.

        Retriable errors are retried.

        Raises:
            UnknownTopic: A topic or partition does not exist.
            KafkaTimeout: The brokers did not answer in time.
        """
        found: dict[TopicPartition, OffsetAndTimestamp] = {}

        async def attempt() -> None:
            left = {tp: time for tp, time in timestamps.items() if tp not in found}
            await self._list_once(left, found)

        await self._cluster.retrying(attempt, timeout_ms=timeout_ms, what="looking up offsets")
        return found

    async def _list_once(
        self,
        timestamps: Mapping[TopicPartition, int],
        found: dict[TopicPartition, OffsetAndTimestamp],
    ) -> None:
        leaders = await by_leader(self._cluster, timestamps)
        responses = await asyncio.gather(
            *(self.list_at_leader(leader, {tp: timestamps[tp] for tp in tps}, found)
              for leader, tps in leaders.items()),
            return_exceptions=True,
        )  # fmt: skip
        for response in responses:
            if isinstance(response, BaseException):
                raise response

    async def list_at_leader(
        self,
        leader: int,
        timestamps: Mapping[TopicPartition, int],
        found: dict[TopicPartition, OffsetAndTimestamp],
    ) -> None:
        """Send one request to one leader, for partitions that it leads.

        Results go to `found`; if a partition fails, this raises after storing the others."""
        request = rpc.list_offsets(
            replica_id=CONSUMER,
            isolation_level=self._isolation,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "timestamp": timestamps[TopicPartition(topic, partition)],
                        }
                        for partition in partitions
                    ],
                }
                for topic, partitions in by_topic(timestamps)
            ],
            timeout_ms=self._cluster.config.request_timeout_ms,
        )
        min_version = 2 if self._isolation else 1
        response = await self._cluster.call(request, node=leader, min_version=min_version)
        failure: tuple[int, str, int] | None = None
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    failure = (partition.error_code, topic.name, partition.partition_index)
                else:
                    found[TopicPartition(topic.name, partition.partition_index)] = (
                        OffsetAndTimestamp(
                            partition.offset, partition.timestamp, partition.leader_epoch
                        )
                    )
        if failure is not None:
            raise error_for(failure[0], topic=failure[1], partition=failure[2])

    async def epoch_end(
        self, leader: int, tp: TopicPartition, current_epoch: int, epoch: int
    ) -> EpochEndOffset:
        """Return the partition of the response, which describes the end of a leader epoch.

        Its `leader_epoch` is the largest epoch up to `epoch` that the leader knows, and
        `end_offset` is the offset at which that epoch ends."""
        partition: OffsetForLeaderPartitionDict = {
            "partition": tp.partition,
            "current_leader_epoch": current_epoch,
            "leader_epoch": epoch,
        }
        request = rpc.offset_for_leader_epoch(
            replica_id=CONSUMER, topics=[{"topic": tp.topic, "partitions": [partition]}]
        )
        response = await self._cluster.call(request, node=leader)
        entry = response.topics[0].partitions[0]
        if entry.error_code:
            raise error_for(entry.error_code, topic=tp.topic, partition=tp.partition)
        return entry


async def by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    """Group partitions by leader. Raises UnknownTopic or LEADER_NOT_AVAILABLE (retriable)."""
    found, without = await leaders_of(cluster, partitions)
    for error in without:
        raise error
    return found


async def leaders_of(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], list[ClientError]]:
    """Group partitions by leader, and return the errors of those that have none."""
    found: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    without: list[ClientError] = []
    wanted = list(partitions)
    missing = {tp.topic for tp in wanted if cluster.metadata.leader(*tp) < 0}
    if missing:
        if cluster.topics_of_interest is not None:
            cluster.topics_of_interest |= missing
        await cluster.refresh(missing)
    for tp in wanted:
        leader = cluster.metadata.leader(*tp)
        if leader < 0:
            without.append(_no_leader(cluster, tp))
        else:
            found[leader].append(tp)
    return dict(found), without


def _no_leader(cluster: Cluster, tp: TopicPartition) -> ClientError:
    known = cluster.metadata.topics.get(tp.topic)
    code = cluster.metadata.errors.get(tp.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if known is not None and 0 <= tp.partition < known.partition_count:
        return error_for(ErrorCode.LEADER_NOT_AVAILABLE, topic=tp.topic, partition=tp.partition)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        what = f"topic {tp.topic!r}" if known is None else f"partition {tp}"
        return UnknownTopic(f"{what} does not exist", topic=tp.topic, partition=tp.partition)
    return error_for(code, topic=tp.topic, partition=tp.partition)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Group partitions by topic, in the order in which requests name them."""
    return list(partitions_by_topic(sorted(partitions)).items())
