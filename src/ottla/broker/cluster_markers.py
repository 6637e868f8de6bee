"""Transaction markers for partitions that other brokers lead: WriteTxnMarkers.

    write ─► led by this broker: LocalMarkers
         └─► queue of the leader ─► one request at a time, with all that wait ─► responses

Nothing is retried here. The caller gets the result of each marker and tries again, which looks up
the leader again (transaction_coordinator.py, core/txn/marker_responses.py). The sender waits for an
unresponsive leader only as long as the image names it as the leader."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.base.cluster import NO_LEADER
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.peers import Peers
from ottla.broker.ports import HostedPartitions, NodeId, PartitionLeaders, Tasks
from ottla.broker.transaction_markers import LocalMarkers, Marker, MarkerPorts, OnWritten
from ottla.net.errors import ClientError
from ottla.wire import rpc
from ottla.wire.request import Request

if TYPE_CHECKING:
    from ottla.wire.messages.write_txn_markers import WriteTxnMarkersResponse

REQUEST_TIMEOUT_S = 30.0
LEADER_CHECK_INTERVAL_S = 0.25
MAX_MARKERS_PER_REQUEST = 1_000
MIN_VERSION = 1


class _PendingMarker(NamedTuple):
    key: TopicPartition
    marker: Marker
    on_written: OnWritten


class MarkerCluster(Protocol):
    """The connections to the other brokers, for markers."""

    @property
    def marker_peers(self) -> Peers: ...


class ClusterMarkerPorts(MarkerPorts, HostedPartitions, NodeId, PartitionLeaders, Tasks, Protocol):
    """The parts of a broker that write markers to partitions of any broker."""

    @property
    def cluster(self) -> MarkerCluster | None: ...


class ClusterMarkers:
    """Markers for partitions led by any broker of the cluster."""

    def __init__(self, broker: ClusterMarkerPorts) -> None:
        self._broker = broker
        self._local = LocalMarkers(broker)
        self._senders: dict[int, _MarkerSender] = {}

    def write(self, partition: TopicPartition, marker: Marker, on_written: OnWritten) -> None:
        broker = self._broker
        held = broker.partitions.get(partition)
        cluster = broker.cluster
        if cluster is None or (held is not None and held.is_leader):
            self._local.write(partition, marker, on_written)
            return
        leader = broker.leader_of(partition)
        if leader is None:
            on_written(partition, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif leader in (NO_LEADER, broker.node_id):
            on_written(partition, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        else:
            sender = self._senders.get(leader)
            if sender is None:
                sender = self._senders[leader] = _MarkerSender(broker, cluster.marker_peers, leader)
            sender.add(_PendingMarker(partition, marker, on_written))


class _MarkerSender:
    """The queue of markers for one broker."""

    def __init__(self, broker: ClusterMarkerPorts, peers: Peers, leader: int) -> None:
        self._broker = broker
        self._peers = peers
        self._leader = leader
        self._unsent: list[_PendingMarker] = []
        self._is_running = False

    def add(self, unsent: _PendingMarker) -> None:
        self._unsent.append(unsent)
        if not self._is_running:
            self._is_running = True
            self._broker.spawn(self._run())

    async def _run(self) -> None:
        try:
            while self._unsent:
                batch = self._next_batch()
                codes = await self._send(batch)
                for key, marker, on_written in batch:
                    code = codes.get((marker.producer.id, key), ErrorCode.NETWORK_EXCEPTION)
                    on_written(key, None if code == ErrorCode.NONE else KafkaError(code))
        finally:
            self._is_running = False

    def _next_batch(self) -> list[_PendingMarker]:
        """Remove the markers for the next request from the queue. Responses identify a marker only
        by its producer ID, so a request never contains two different markers of one producer."""
        batch: list[_PendingMarker] = []
        left: list[_PendingMarker] = []
        markers: dict[int, Marker] = {}
        for each in self._unsent:
            known = markers.setdefault(each.marker.producer.id, each.marker)
            fits = known == each.marker and len(batch) < MAX_MARKERS_PER_REQUEST
            (batch if fits else left).append(each)
        self._unsent = left
        return batch

    async def _send(
        self, batch: list[_PendingMarker]
    ) -> dict[tuple[int, TopicPartition], ErrorCode]:
        request = asyncio.ensure_future(
            self._peers.request(
                self._leader, _request(batch), REQUEST_TIMEOUT_S, min_version=MIN_VERSION
            )
        )
        try:
            while not (await asyncio.wait({request}, timeout=LEADER_CHECK_INTERVAL_S))[0]:
                if not self._leads_any(batch):
                    return {}
            return _codes(request.result())
        except ClientError:
            return {}
        finally:
            request.cancel()

    def _leads_any(self, batch: list[_PendingMarker]) -> bool:
        return any(self._broker.leader_of(each.key) == self._leader for each in batch)


def _request(batch: list[_PendingMarker]) -> Request[WriteTxnMarkersResponse]:
    partitions: dict[Marker, dict[str, list[int]]] = {}
    for key, marker, _ in batch:
        partitions.setdefault(marker, {}).setdefault(key.topic, []).append(key.partition)
    return rpc.write_txn_markers(
        markers=[
            {
                "producer_id": marker.producer.id,
                "producer_epoch": marker.producer.epoch,
                "transaction_result": marker.commit,
                "topics": [
                    {"name": name, "partition_indexes": indexes} for name, indexes in topics.items()
                ],
                "coordinator_epoch": marker.coordinator_epoch,
                "transaction_version": marker.transaction_version,
            }
            for marker, topics in partitions.items()
        ]
    )


def _codes(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    return {
        (marker.producer_id, TopicPartition(topic.name, result.partition_index)): ErrorCode(
            result.error_code
        )
        for marker in response.markers
        for topic in marker.topics
        for result in topic.partitions
    }
