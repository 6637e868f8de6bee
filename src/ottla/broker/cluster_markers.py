"""Markers of transactions for partitions all over the cluster.

Those that this broker leads are written here (transaction_markers.py); the others' leaders are told
by WriteTxnMarkers. Markers for one leader that come while a request is under way go together in the
next one. What fails is told to the coordinator, which asks again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.base.cluster import NO_LEADER
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.transaction_markers import LocalMarkers, Marker, OnWritten
from ottla.net.errors import ClientError
from ottla.wire.api import Api

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

MIN_VERSION = 1


class _Waiting(NamedTuple):
    key: TopicPartition
    marker: Marker
    on_written: OnWritten


class ClusterMarkers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._local = LocalMarkers(broker)
        self._queues: dict[int, list[_Waiting]] = {}
        """By leader; there while a request to it is under way."""

    def write(self, partition: TopicPartition, marker: Marker, on_written: OnWritten) -> None:
        leader = self._leader(partition)
        if leader in (None, self._broker.node_id):
            self._local.write(partition, marker, on_written)
            return
        if leader == NO_LEADER:
            on_written(partition, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE))
            return
        assert leader is not None
        waiting = _Waiting(partition, marker, on_written)
        if leader in self._queues:
            self._queues[leader].append(waiting)
        else:
            self._queues[leader] = [waiting]
            self._broker.spawn(self._send_all(leader))

    def _leader(self, key: TopicPartition) -> int | None:
        """None: this broker is alone, or there is no such partition."""
        topic = self._broker.image.topics.get(key.topic)
        if self._broker.cluster is None or topic is None or key.partition >= len(topic.partitions):
            return None
        return topic.partitions[key.partition].leader

    async def _send_all(self, leader: int) -> None:
        try:
            while self._queues[leader]:
                batch, self._queues[leader] = self._queues[leader], []
                await self._send(leader, batch)
        finally:
            del self._queues[leader]

    async def _send(self, leader: int, batch: list[_Waiting]) -> None:
        assert self._broker.cluster is not None
        try:
            answer = await self._broker.cluster.peers.request(
                leader, Api.WRITE_TXN_MARKERS, _body(batch), min_version=MIN_VERSION
            )
        except ClientError as error:
            failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
            for waiting in batch:
                waiting.on_written(waiting.key, failure)
            return
        told = _codes(answer)
        for waiting in batch:
            missing = ErrorCode.UNKNOWN_SERVER_ERROR
            code = told.get((waiting.marker.producer.id, waiting.key), missing)
            waiting.on_written(waiting.key, KafkaError(ErrorCode(code)) if code else None)


def _body(batch: list[_Waiting]) -> dict[str, Any]:
    markers: dict[Marker, dict[str, list[int]]] = {}
    for key, marker, _ in batch:
        markers.setdefault(marker, {}).setdefault(key.topic, []).append(key.partition)
    return {
        "markers": [
            {
                "producer_id": marker.producer.id,
                "producer_epoch": marker.producer.epoch,
                "transaction_result": marker.commit,
                "coordinator_epoch": marker.coordinator_epoch,
                "transaction_version": marker.transaction_version,
                "topics": [
                    {"name": name, "partition_indexes": indexes} for name, indexes in topics.items()
                ],
            }
            for marker, topics in markers.items()
        ]
    }


def _codes(answer: Any) -> dict[tuple[int, TopicPartition], int]:
    return {
        (marker.producer_id, TopicPartition(topic.name, each.partition_index)): each.error_code
        for marker in answer.markers
        for topic in marker.topics
        for each in topic.partitions
    }
