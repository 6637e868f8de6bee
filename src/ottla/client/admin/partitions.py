"""Contents of partitions: offsets, deletion of records, and active producers.

ListOffsets 1+, DeleteRecords 0+, DescribeProducers 0+, sent to the partitions' leaders"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ottla.base.types import TopicPartition, partitions_by_topic
from ottla.client.admin.dispatch import AtBrokers, AtLeaders, Lookup, Results, dispatch
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError, error_for
from ottla.wire import rpc

if TYPE_CHECKING:
    from ottla.wire.messages import describe_producers as messages
    from ottla.wire.messages.delete_records import DeleteRecordsPartitionDict
    from ottla.wire.messages.list_offsets import ListOffsetsPartitionDict

CONSUMER_REPLICA_ID = -1
HIGH_WATERMARK = -1
"""Offset for `delete_records` that stands for the high watermark."""


class OffsetSpec(IntEnum):
    """Offset to look up, with Kafka's codes.

    A time in milliseconds, used in its place, stands for the first record at or after that time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    """Offset of the record with the largest timestamp."""
    EARLIEST_LOCAL = -4
    """Offset of the first record on the broker's local disk, with tiered storage."""
    LATEST_TIERED = -5
    """Offset of the last record in remote storage."""


_SINCE_VERSION = {
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
}


class IsolationLevel(IntEnum):
    """Whether to see records of open transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class ListedOffset(NamedTuple):
    """Offset that was looked up."""

    offset: int | None
    """Offset, or None if there is no such record."""
    timestamp: int | None
    """Timestamp of the record in milliseconds, or None."""
    leader_epoch: int
    """Leader epoch of the record, or -1."""


class ProducerState(NamedTuple):
    """State of a producer in one partition."""

    producer_id: int
    """ID of the producer."""
    producer_epoch: int
    """Epoch of the producer."""
    last_sequence: int
    """Sequence of its last record."""
    last_timestamp: int
    """Timestamp of its last batch, in milliseconds."""
    coordinator_epoch: int | None
    """Epoch of the coordinator that ended its last transaction, or None."""
    current_txn_start_offset: int | None
    """First offset of the open transaction in this partition, or None if there is none."""


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> Results[TopicPartition, ListedOffset]:
    async def ask(
        node: int, keys: list[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset | ClientError]:
        found: dict[TopicPartition, ListedOffset | ClientError] = {}
        by_version: dict[int, list[TopicPartition]] = {}
        for key in keys:
            version = _SINCE_VERSION.get(OffsetSpec(wanted[key]), 0) if wanted[key] < 0 else 0
            by_version.setdefault(version, []).append(key)
        for version, share in by_version.items():
            try:
                found |= await _list_at(cluster, node, share, wanted, isolation, version)
            except ClientError as error:  # an unsupported version must not fail the other shares
                found |= dict.fromkeys(share, error)
        return found

    return await dispatch(AtLeaders(cluster), wanted, ask, what="listing offsets")


async def _list_at(
    cluster: Cluster,
    node: int,
    keys: list[TopicPartition],
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    min_version: int,
) -> dict[TopicPartition, ListedOffset | ClientError]:
    def entry_of(key: TopicPartition) -> ListOffsetsPartitionDict:
        return {
            "partition_index": key.partition,
            "current_leader_epoch": cluster.metadata.leader_epoch(*key),
            "timestamp": int(wanted[key]),
        }

    request = rpc.list_offsets(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=int(isolation),
        topics=[
            {"name": name, "partitions": each} for name, each in _by_topic(keys, entry_of).items()
        ],
        timeout_ms=cluster.config.request_timeout_ms,
    )
    needed = max(min_version, 2 if isolation else 0)
    response = await cluster.call(request, node=node, min_version=needed)
    return {
        key: _failure(key, entry.error_code)
        or ListedOffset(_or_none(entry.offset), _or_none(entry.timestamp), entry.leader_epoch)
        for key, entry in _partition_entries(response.topics)
    }


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> Results[TopicPartition, int]:
    """Delete records before offsets, and return the new log start offset of each partition."""

    def entry_of(key: TopicPartition) -> DeleteRecordsPartitionDict:
        return {"partition_index": key.partition, "offset": before[key]}

    async def ask(node: int, keys: list[TopicPartition]) -> dict[TopicPartition, int | ClientError]:
        by_topic = _by_topic(keys, entry_of)
        request = rpc.delete_records(
            topics=[{"name": name, "partitions": each} for name, each in by_topic.items()],
            timeout_ms=cluster.config.request_timeout_ms,
        )
        response = await cluster.call(request, node=node)
        return {
            key: _failure(key, entry.error_code) or entry.low_watermark
            for key, entry in _partition_entries(response.topics)
        }

    return await dispatch(AtLeaders(cluster), before, ask, what="deleting records")


async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], broker: int | None
) -> Results[TopicPartition, list[ProducerState]]:
    """Describe the producers as the leaders, or one broker with a replica, know them."""

    async def ask(
        node: int, keys: list[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState] | ClientError]:
        grouped = partitions_by_topic(keys)
        request = rpc.describe_producers(
            topics=[{"name": name, "partition_indexes": each} for name, each in grouped.items()]
        )
        response = await cluster.call(request, node=node)
        return {
            key: _failure(key, entry.error_code, entry.error_message)
            or [_producer(each) for each in entry.active_producers]
            for key, entry in _partition_entries(response.topics)
        }

    lookup: Lookup[TopicPartition] = AtLeaders(cluster)
    if broker is not None:
        at = broker
        lookup = AtBrokers(cluster, lambda key: at)
    return await dispatch(lookup, partitions, ask, what="describing producers")


def _producer(entry: messages.ProducerState) -> ProducerState:
    return ProducerState(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_timestamp,
        _or_none(entry.coordinator_epoch),
        _or_none(entry.current_txn_start_offset),
    )


V = TypeVar("V")


def _by_topic(
    keys: Iterable[TopicPartition], entry_of: Callable[[TopicPartition], V]
) -> dict[str, list[V]]:
    grouped: dict[str, list[V]] = {}
    for key in keys:
        grouped.setdefault(key.topic, []).append(entry_of(key))
    return grouped


class _Partition(Protocol):
    partition_index: int


PartitionT = TypeVar("PartitionT", bound=_Partition)
PartitionT_co = TypeVar("PartitionT_co", bound=_Partition, covariant=True)


class _Topic(Protocol[PartitionT_co]):
    name: str

    @property
    def partitions(self) -> Sequence[PartitionT_co]: ...


def _partition_entries(
    topics: Iterable[_Topic[PartitionT]],
) -> Iterable[tuple[TopicPartition, PartitionT]]:
    for topic in topics:
        for entry in topic.partitions:
            yield TopicPartition(topic.name, entry.partition_index), entry


def _failure(key: TopicPartition, code: int, message: str | None = None) -> ClientError | None:
    return error_for(code, message, topic=key.topic, partition=key.partition) if code else None


def _or_none(number: int) -> int | None:
    return None if number < 0 else number
