"""WriteTxnMarkers (key 27), versions 1–2: the end of transactions in partitions led by this broker.

Coordinators send it, and so does `kafka-transactions abort` for a hanging transaction. Each
partition has its own result: INVALID_PRODUCER_EPOCH if the partition has seen a newer producer
epoch, TRANSACTION_COORDINATOR_FENCED if it has seen a newer coordinator epoch. Version 2 has the
transaction version: from 2 on, a marker's epoch must be above that of the transaction it ends.

A partition of the offsets topic whose groups are being loaded is NOT_LEADER_OR_FOLLOWER, so that
the coordinator retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.parked_request import ParkedRequest
from ottla.broker.transaction_markers import LocalMarkers, Marker
from ottla.core.coordinator import Producer

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

API_KEY = 27
_NOT_YET = frozenset({
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
})  # fmt: skip


def handle(broker: Broker, context: RequestContext, request: Any) -> Response:
    results = [_Result(asked) for asked in request.markers]
    parked = ParkedRequest(lambda code: {"markers": []})
    missing = sum(len(result.missing) for result in results)

    def one_written() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            parked.reply({"markers": [result.body() for result in results]})

    if not missing:
        return {"markers": [result.body() for result in results]}
    markers = LocalMarkers(broker)
    for asked, result in zip(request.markers, results, strict=True):
        marker = Marker(
            Producer(asked.producer_id, asked.producer_epoch),
            asked.transaction_result,
            asked.coordinator_epoch,
            asked.transaction_version,
        )
        for key in list(result.missing):

            def on_written(
                key: TopicPartition, error: KafkaError | None, result: _Result = result
            ) -> None:
                result.note(key, error)
                one_written()

            markers.write(key, marker, on_written)
    return parked.response()


class _Result:
    """The results of one marker."""

    def __init__(self, asked: Any) -> None:
        self._producer_id = asked.producer_id
        self._codes: dict[TopicPartition, int] = {}
        self.missing = list(
            dict.fromkeys(
                TopicPartition(topic.name, index)
                for topic in asked.topics
                for index in topic.partition_indexes
            )
        )

    def note(self, key: TopicPartition, error: KafkaError | None) -> None:
        code = ErrorCode.NONE if error is None else error.code
        self._codes[key] = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_YET else code

    def body(self) -> Body:
        topics: dict[str, list[Body]] = {}
        for key in self.missing:
            told = {"partition_index": key.partition, "error_code": self._codes[key]}
            topics.setdefault(key.topic, []).append(told)
        return {
            "producer_id": self._producer_id,
            "topics": [{"name": name, "partitions": told} for name, told in topics.items()],
        }
