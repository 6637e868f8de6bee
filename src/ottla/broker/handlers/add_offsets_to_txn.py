"""AddOffsetsToTxn (key 25), versions 0–4: the announcement that a transaction will commit offsets.

It adds the group's partition of the offsets topic, which is created if it does not exist.
PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2."""

from __future__ import annotations

from typing import Any, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.delayed_response import DelayedResponse
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.internal_topic import InternalTopic
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.txn.events import AddPartitionsRequested

API_KEY = 25
_FIRST_WITH_FENCED = 2


class GroupCoordinator(Protocol):
    @property
    def topic(self) -> InternalTopic: ...


class TransactionCoordinator(Protocol):
    def add_partitions(self, event: AddPartitionsRequested) -> None: ...


class Ports(Protocol):
    """The parts of a broker that AddOffsetsToTxn uses."""

    @property
    def group_coordinator(self) -> GroupCoordinator: ...

    @property
    def transaction_coordinator(self) -> TransactionCoordinator: ...


def handle(broker: Ports, context: RequestContext, request: Any) -> Response:
    if not request.transactional_id or not request.group_id:
        return {"error_code": ErrorCode.INVALID_REQUEST}
    if broker.group_coordinator.topic.image is None:
        return _create_and_add(broker, context, request)
    return _add(broker, context, request)


async def _create_and_add(broker: Ports, context: RequestContext, request: Any) -> Body | None:
    try:
        await broker.group_coordinator.topic.create()
    except KafkaError as error:
        return {"error_code": error.code}
    response = _add(broker, context, request)
    return response if isinstance(response, dict) else await response  # type: ignore[misc]


def _add(broker: Ports, context: RequestContext, request: Any) -> Response:
    index = broker.group_coordinator.topic.partition_for(request.group_id)
    if index is None:
        return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}

    def finish(body: Body) -> Body:
        return _response(body["error_code"], context.api_version)

    delayed = DelayedResponse(lambda code: _response(code, context.api_version), finish)
    broker.transaction_coordinator.add_partitions(
        AddPartitionsRequested(
            delayed,
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            frozenset({TopicPartition(OFFSETS_TOPIC, index)}),
        )
    )
    return delayed.response()


def _response(code: ErrorCode, version: int) -> Body:
    if code == ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"error_code": code}
