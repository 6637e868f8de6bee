"""ListOffsets (key 2), versions 1–11.

    timestamp   result
    >= 0        the first record at or after it
    -1          the end: the high watermark, or the last stable offset under read_committed
    -2, -4      the log start offset
    -3          the record with the largest timestamp (KIP-734)
    -5, -6      -1: offsets in remote storage, which this broker does not have

- Other negative timestamps, and those that are newer than the version of the request, are
  UNSUPPORTED_VERSION. A partition that is requested twice is returned once, with INVALID_REQUEST.
- Offsets that a consumer could not read yet are not returned.
- Look-ups by timestamp may wait for the disk, so they run in a thread.
- A follower that requests the end gets the log end offset. A client that is not a broker gets the
  high watermark, even if it names a replica.
- A leader without a lease responds when its followers have proved that it still leads.
- A new leader does not know its predecessor's high watermark. Until its own has reached the end
  offset that its log had when it was elected, everything but the log start offset is
  OFFSET_NOT_AVAILABLE, before version 5 LEADER_NOT_AVAILABLE, so that end offsets never go back
  (KIP-207).
- With an authorizer, the client needs DESCRIBE on each topic; without it, the partitions are
  TOPIC_AUTHORIZATION_FAILED, whatever else is wrong with them.

Deviations
- A follower needs CLUSTER_ACTION only. Kafka asks it for DESCRIBE on the topics, too."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext
from ottla.broker.partition import Partition
from ottla.broker.ports import LeadershipProofs, PartitionLookup, Threads
from ottla.core.security.permissions import DESCRIBE_TOPIC

if TYPE_CHECKING:
    from ottla.wire.messages.list_offsets import (
        ListOffsetsPartition,
        ListOffsetsPartitionResponseDict,
        ListOffsetsRequest,
        ListOffsetsResponseDict,
        ListOffsetsTopicResponseDict,
    )

READ_COMMITTED = 1
UNKNOWN = -1
LATEST = -1
_EARLIEST_TIMESTAMPS = (-2, -4)
_FIRST_WITH_NOT_AVAILABLE = 5
MAX_WAIT_S = 5.0
"""Longest wait for followers to prove leadership when this broker has no lease."""
_FIRST_VERSIONS = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""Special timestamp -> first version that supports it."""


class Ports(LeadershipProofs, PartitionLookup, Threads, Protocol):
    """The parts of a broker that ListOffsets uses."""


async def handle(
    broker: Ports, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponseDict:
    committed_only = request.isolation_level == READ_COMMITTED
    version = context.api_version
    is_replica = request.replica_id >= 0 and context.is_peer
    counts = Counter(
        (topic.name, requested.partition_index)
        for topic in request.topics
        for requested in topic.partitions
    )
    topics: list[ListOffsetsTopicResponseDict] = []
    for topic in request.topics:
        partitions: dict[int, ListOffsetsPartitionResponseDict] = {}
        is_denied = not is_replica and not context.may(DESCRIBE_TOPIC, topic.name)
        for requested in topic.partitions:
            index = requested.partition_index
            if is_denied:
                partitions[index] = _error(index, DESCRIBE_TOPIC.error)
            elif counts[topic.name, index] > 1:
                partitions[index] = _error(index, ErrorCode.INVALID_REQUEST)
            elif requested.timestamp < 0 and not _is_known(requested.timestamp, version):
                partitions[index] = _error(index, ErrorCode.UNSUPPORTED_VERSION)
            else:
                partitions[index] = await _list_offset(
                    broker, topic.name, requested, committed_only, is_replica, version
                )
        topics.append({"name": topic.name, "partitions": list(partitions.values())})
    return {"topics": topics}


def _is_known(timestamp: int, version: int) -> bool:
    return version >= _FIRST_VERSIONS.get(timestamp, version + 1)


def _error(index: int, code: ErrorCode) -> ListOffsetsPartitionResponseDict:
    return {"partition_index": index, "error_code": code}


async def _list_offset(
    broker: Ports,
    topic: str,
    requested: ListOffsetsPartition,
    committed_only: bool,
    is_replica: bool,
    version: int,
) -> ListOffsetsPartitionResponseDict:
    index = requested.partition_index
    try:
        partition = broker.find_partition(TopicPartition(topic, index))
        partition.check_leader_epoch(requested.current_leader_epoch)
        proof = None if is_replica else broker.leadership_proof(partition)
        if proof is not None:
            await _wait(proof)
        if is_replica and requested.timestamp == LATEST:
            # A follower also has records above the high watermark, so it needs the log end offset.
            timestamp, offset, epoch = UNKNOWN, partition.log.log_end_offset, partition.leader_epoch
        else:
            if requested.timestamp not in _EARLIEST_TIMESTAMPS and not _knows_high_watermark(
                partition
            ):
                raise KafkaError(
                    ErrorCode.OFFSET_NOT_AVAILABLE
                    if version >= _FIRST_WITH_NOT_AVAILABLE
                    else ErrorCode.LEADER_NOT_AVAILABLE
                )
            timestamp, offset, epoch = await _find(
                broker, partition, requested.timestamp, committed_only
            )
    except KafkaError as error:
        return _error(index, error.code)
    return {
        "partition_index": index,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch,
    }


def _knows_high_watermark(partition: Partition) -> bool:
    leadership = partition.leadership
    return leadership is None or leadership.high_watermark >= leadership.epoch_start_offset


async def _wait(proof: asyncio.Future[None]) -> None:
    """Wait for the proof of leadership: without a lease another leader may have committed more."""
    try:
        async with asyncio.timeout(MAX_WAIT_S):
            await proof
    except TimeoutError:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None


async def _find(
    broker: Ports, partition: Partition, timestamp: int, committed_only: bool
) -> tuple[int, int, int]:
    """Return (timestamp, offset, leader epoch), with -1 for anything unknown."""
    log = partition.log
    end = partition.readable_to(committed_only=committed_only)
    match timestamp:
        case -1:  # LATEST
            return UNKNOWN, end, partition.leader_epoch
        case -2 | -4:
            start = log.log_start_offset
            return UNKNOWN, start, log.epochs.epoch_for(start)
        case -3:
            found = await broker.run_blocking(log.offset_of_max_timestamp)
        case -5 | -6:
            return UNKNOWN, UNKNOWN, UNKNOWN
        case _:
            found = await broker.run_blocking(lambda: log.offset_for_timestamp(timestamp))
    if found is None or found.offset >= end:
        return UNKNOWN, UNKNOWN, UNKNOWN
    return found.timestamp, found.offset, found.leader_epoch
