"""InitProducerId (key 22), versions 0–5: the producer ID and epoch of a producer.

Without a transactional ID, the producer gets a new ID from a block that is reserved in the metadata
store, so no ID is used twice. With one, it gets the producer ID that belongs to it and the next
epoch, which fences the previous producer; an open transaction is aborted first, and the producer
gets CONCURRENT_TRANSACTIONS until that is done.

- An empty transactional ID, and a producer ID without an epoch or the reverse, are INVALID_REQUEST.
- KIP-360 (version 3): a producer that sends its ID and epoch continues with the next epoch, unless
  another producer has fenced it: PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before version 4.
- With an authorizer, the client needs WRITE on the transactional ID, or else
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Without one, it needs WRITE on at least one topic, which
  does not have to exist, or IDEMPOTENT_WRITE on the cluster, or else CLUSTER_AUTHORIZATION_FAILED.
- Version 6 (KIP-939, two-phase commit) is not served, as in Kafka, where it is unstable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext
from ottla.broker.delayed_response import ConvertedToken, DelayedResponse
from ottla.core.coordinator import ProducerIdAndEpoch
from ottla.core.security.permissions import (
    WRITE_IDEMPOTENTLY,
    WRITE_TRANSACTIONAL_ID,
    Permission,
)
from ottla.core.txn.events import InitRequested, NewIdEvent

if TYPE_CHECKING:
    from ottla.wire.messages.init_producer_id import (
        InitProducerIdRequest,
        InitProducerIdResponseDict,
    )

FIRST_EPOCH = 0
NONE = -1
_FIRST_WITH_FENCED = 4


class Coordinator(Protocol):
    async def submit_with_id(self, event: NewIdEvent) -> None: ...


class ProducerIds(Protocol):
    async def next(self) -> int: ...


class Ports(Protocol):
    """The parts of a broker that InitProducerId uses."""

    @property
    def producer_ids(self) -> ProducerIds: ...

    @property
    def transaction_coordinator(self) -> Coordinator: ...


async def handle(
    broker: Ports, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponseDict | None:
    denied = _denied(context, request.transactional_id)
    if denied is not None:
        return _error(denied.error)
    has_half_an_identity = (request.producer_id == NONE) != (request.producer_epoch == NONE)
    if request.transactional_id == "" or has_half_an_identity:
        return _error(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is not None:
            return await _for_transactions(
                broker, context.api_version, request, request.transactional_id
            )
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return _error(error.code)
    return {"producer_id": producer_id, "producer_epoch": FIRST_EPOCH}


def _denied(context: RequestContext, transactional_id: str | None) -> Permission | None:
    """Return the permission that the client lacks, or None."""
    access = context.access
    if access is None:
        return None
    if transactional_id is not None:
        may = context.may(WRITE_TRANSACTIONAL_ID, transactional_id)
        return None if may else WRITE_TRANSACTIONAL_ID
    if access.may_write_some_topic(context.api_key) or context.may(WRITE_IDEMPOTENTLY):
        return None
    return WRITE_IDEMPOTENTLY


async def _for_transactions(
    broker: Ports, version: int, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponseDict | None:
    def finish(body: InitProducerIdResponseDict) -> InitProducerIdResponseDict:
        code = ErrorCode(body["error_code"])
        return _error(_error_for_version(code, version)) if code != ErrorCode.NONE else body

    delayed = DelayedResponse(lambda code: _error(_error_for_version(code, version)))
    expected = None
    if request.producer_id != NONE:
        expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    await broker.transaction_coordinator.submit_with_id(
        InitRequested(
            ConvertedToken(delayed, finish),
            transactional_id,
            request.transaction_timeout_ms,
            expected,
        )
    )
    return await delayed.wait()


def _error_for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def _error(code: ErrorCode) -> InitProducerIdResponseDict:
    return {"error_code": code, "producer_id": NONE, "producer_epoch": NONE}
