"""AddOffsetsToTxn (key 25), versions 0–4: the announcement that a transaction will commit offsets.

It adds the group's partition of the offsets topic, which is created if it does not exist.
PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2.

With an authorizer, the client needs WRITE on the transactional ID, or else
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and READ on the group, or else GROUP_AUTHORIZATION_FAILED."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.types import TopicPartition
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import ConvertedToken, DelayedResponse
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.internal_topic import InternalTopic
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.security.permissions import READ_GROUP, WRITE_TRANSACTIONAL_ID
from ottla.core.txn.events import AddPartitionsRequested, PartitionCodes

if TYPE_CHECKING:
    from ottla.wire.messages.add_offsets_to_txn import (
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponseDict,
    )

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


def handle(
    broker: Ports, context: RequestContext, request: AddOffsetsToTxnRequest
) -> Response[AddOffsetsToTxnResponseDict]:
    try:
        context.check(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        context.check(READ_GROUP, request.group_id)
    except KafkaError as error:
        return {"error_code": error.code}
    if not request.transactional_id or not request.group_id:
        return {"error_code": ErrorCode.INVALID_REQUEST}
    if broker.group_coordinator.topic.image is None:
        return _create_and_add(broker, context, request)
    return _add(broker, context, request)


async def _create_and_add(
    broker: Ports, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponseDict | None:
    try:
        await broker.group_coordinator.topic.create()
    except KafkaError as error:
        return {"error_code": error.code}
    response = _add(broker, context, request)
    return await response if isinstance(response, asyncio.Future) else response


def _add(
    broker: Ports, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponseDict | asyncio.Future[AddOffsetsToTxnResponseDict | None]:
    index = broker.group_coordinator.topic.partition_for(request.group_id)
    if index is None:
        return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}

    def finish(body: PartitionCodes) -> AddOffsetsToTxnResponseDict:
        return _response(body["error_code"], context.api_version)

    delayed = DelayedResponse(lambda code: _response(code, context.api_version))
    broker.transaction_coordinator.add_partitions(
        AddPartitionsRequested(
            ConvertedToken(delayed, finish),
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            frozenset({TopicPartition(OFFSETS_TOPIC, index)}),
        )
    )
    return delayed.response()


def _response(code: ErrorCode, version: int) -> AddOffsetsToTxnResponseDict:
    if code == ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"error_code": code}
