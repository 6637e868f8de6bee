"""Transaction markers: the control batches that end a transaction in each of its partitions.

`Markers` is the port through which the transaction coordinator writes them. `LocalMarkers` writes
to partitions that this broker leads; the handler of WriteTxnMarkers uses it, too. The leaders of
other partitions get a WriteTxnMarkers request (cluster_markers.py).

A marker for a partition of the offsets topic goes through the group coordinator, because it decides
about pending offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.partition import Partition
from ottla.broker.ports import Flushing, LeadershipProofs, PartitionLookup, TimeSource
from ottla.core.coordinator import ProducerIdAndEpoch, Token
from ottla.wire.records.batch import read_header
from ottla.wire.records.builder import end_txn_marker

OnWritten = Callable[[TopicPartition, KafkaError | None], None]
"""Called once for each partition, with None when the marker is committed, or with the error."""


class Marker(NamedTuple):
    """The marker of one transaction."""

    producer: ProducerIdAndEpoch
    commit: bool
    coordinator_epoch: int
    transaction_version: int = 0
    """From 2 on, the producer epoch is above that of all records in the transaction (KIP-890)."""


class Markers(Protocol):
    """The port for writing markers."""

    def write(self, partition: TopicPartition, marker: Marker, on_written: OnWritten) -> None: ...


class _MarkerToken:
    """The token of a marker that the group coordinator writes."""

    __slots__ = ("_key", "_on_written")

    def __init__(self, key: TopicPartition, on_written: OnWritten) -> None:
        self._key = key
        self._on_written = on_written

    def reply(self, body: None) -> None:
        self._on_written(self._key, None)

    def fail(self, error: KafkaError) -> None:
        self._on_written(self._key, error)


class OffsetsCoordinator(Protocol):
    """The part of the group coordinator that ends transactions in the offsets topic."""

    def end_transaction(
        self,
        index: int,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        token: Token[None],
        *,
        commit: bool,
    ) -> None: ...


class MarkerPorts(Flushing, LeadershipProofs, PartitionLookup, TimeSource, Protocol):
    """The parts of a broker that write markers to its own partitions."""

    @property
    def group_coordinator(self) -> OffsetsCoordinator: ...


class LocalMarkers:
    """Markers for partitions that this broker leads."""

    def __init__(self, broker: MarkerPorts) -> None:
        self._broker = broker

    def write(self, partition: TopicPartition, marker: Marker, on_written: OnWritten) -> None:
        try:
            found = self._broker.find_partition(partition)
            self._check_version(found, marker)
        except KafkaError as error:
            on_written(partition, error)
            return
        if partition.topic == OFFSETS_TOPIC:
            self._broker.group_coordinator.end_transaction(
                partition.partition,
                marker.producer,
                marker.coordinator_epoch,
                _MarkerToken(partition, on_written),
                commit=marker.commit,
            )
        else:
            self._append(found, marker, on_written)

    def _check_version(self, partition: Partition, marker: Marker) -> None:
        """Raise KafkaError if a version 2 marker does not have a newer epoch than the open
        transaction. A repeated marker passes, because nothing is open any more."""
        producer, producers = marker.producer, partition.log.producers
        if marker.transaction_version >= 2 and producers.is_open(producer.id, producer.epoch):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker with epoch {producer.epoch} cannot end a transaction of the same epoch",
            )

    def _append(self, partition: Partition, marker: Marker, on_written: OnWritten) -> None:
        broker, now_ms = self._broker, self._broker.clock.time_ms()
        batch = end_txn_marker(*marker.producer, marker.commit, marker.coordinator_epoch, now_ms)
        try:
            partition.check_in_sync()
            broker.check_can_prove_leadership(partition)
            result = partition.append(batch, read_header(batch), now_ms)
        except KafkaError as error:
            on_written(partition.key, error)
            return
        if partition.waits_for_sync or partition.log.wants_flush:
            broker.flusher.request(partition)
        if partition.commits_on_append:
            on_written(partition.key, None)
            return
        committed = partition.wait_for_high_watermark(result.last_offset + 1)
        committed.add_done_callback(lambda done: on_written(partition.key, _failure(done)))


def _failure(done: asyncio.Future[None]) -> KafkaError | None:
    error = None if done.cancelled() else done.exception()
    return error if isinstance(error, KafkaError) else None
