"""WriteTxnMarkers (key 27), versions 1–2: the end of transactions in partitions led by this broker.

Coordinators send it, and so does `kafka-transactions abort` for a hanging transaction. Brokers and
super users may, and with an authorizer clients that have ALTER or CLUSTER_ACTION on the cluster.
Any other client gets CLUSTER_AUTHORIZATION_FAILED for each partition.

Each partition has its own result: INVALID_PRODUCER_EPOCH if the partition has seen a newer producer
epoch, TRANSACTION_COORDINATOR_FENCED if it has seen a newer coordinator epoch. Version 2 has the
transaction version: from 2 on, a marker's epoch must be above that of the transaction it ends.

A partition of the offsets topic whose groups are being loaded is NOT_LEADER_OR_FOLLOWER, so that
the coordinator retries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.peers import report_stranger
from ottla.broker.ports import PeerRecognition
from ottla.broker.transaction_markers import LocalMarkers, Marker, MarkerPorts
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.security.permissions import ACT_AS_BROKER, ALTER_CLUSTER

if TYPE_CHECKING:
    from ottla.wire.messages.write_txn_markers import (
        WritableTxnMarker,
        WritableTxnMarkerPartitionResultDict,
        WritableTxnMarkerResultDict,
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponseDict,
    )

_NOT_YET = frozenset({
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip


class Ports(MarkerPorts, PeerRecognition, Protocol):
    """The parts of a broker that WriteTxnMarkers uses."""


def handle(
    broker: Ports, context: RequestContext, request: WriteTxnMarkersRequest
) -> Response[WriteTxnMarkersResponseDict]:
    results = [_Result(requested) for requested in request.markers]
    if not _may_write(broker, context):
        report_stranger(broker, context, "to write transaction markers")
        for result in results:
            result.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return _response(results)
    delayed = DelayedResponse(lambda code: _response(()))
    missing = sum(len(result.missing) for result in results)

    def one_written() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            delayed.reply(_response(results))

    if not missing:
        return _response(results)
    markers = LocalMarkers(broker)
    for requested, result in zip(request.markers, results, strict=True):
        marker = Marker(
            ProducerIdAndEpoch(requested.producer_id, requested.producer_epoch),
            requested.transaction_result,
            requested.coordinator_epoch,
            requested.transaction_version,
        )
        for key in list(result.missing):

            def on_written(
                key: TopicPartition, error: KafkaError | None, result: _Result = result
            ) -> None:
                result.record(key, error)
                one_written()

            markers.write(key, marker, on_written)
    return delayed.response()


def _may_write(broker: Ports, context: RequestContext) -> bool:
    if context.access is None:
        return context.is_peer or broker.peer_rule.is_super_user(context.principal)
    return context.may(ALTER_CLUSTER, is_audited=False) or context.may(ACT_AS_BROKER)


def _response(results: Sequence[_Result]) -> WriteTxnMarkersResponseDict:
    return {"markers": [result.body() for result in results]}


class _Result:
    """The results of one marker."""

    def __init__(self, requested: WritableTxnMarker) -> None:
        self._producer_id = requested.producer_id
        self._codes: dict[TopicPartition, int] = {}
        self.missing = list(
            dict.fromkeys(
                TopicPartition(topic.name, index)
                for topic in requested.topics
                for index in topic.partition_indexes
            )
        )

    def record(self, key: TopicPartition, error: KafkaError | None) -> None:
        code = ErrorCode.NONE if error is None else error.code
        self._codes[key] = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_YET else code

    def refuse(self, code: ErrorCode) -> None:
        self._codes = dict.fromkeys(self.missing, code)

    def body(self) -> WritableTxnMarkerResultDict:
        topics: dict[str, list[WritableTxnMarkerPartitionResultDict]] = {}
        for key in self.missing:
            topics.setdefault(key.topic, []).append(
                {"partition_index": key.partition, "error_code": self._codes[key]}
            )
        return {
            "producer_id": self._producer_id,
            "topics": [
                {"name": name, "partitions": partition_result}
                for name, partition_result in topics.items()
            ],
        }
