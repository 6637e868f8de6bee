"""EndTxn (key 26), versions 0–5: commit or abort of a transaction.

- The response is sent when the decision is committed; the markers follow. A repeated request gets
  the same response, or CONCURRENT_TRANSACTIONS while markers are being written.
- Version 5 (KIP-890): the end bumps the producer epoch. The response has the new epoch, or a new
  producer ID if the epochs are exhausted. An abort succeeds even if no partition was added.
- PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2.
- With an authorizer, the client needs WRITE on the transactional ID, or else
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import ConvertedToken, DelayedResponse
from ottla.broker.ports import TransactionSubmitter
from ottla.core.coordinator import NO_PRODUCER_ID, ProducerIdAndEpoch
from ottla.core.security.permissions import WRITE_TRANSACTIONAL_ID
from ottla.core.txn.events import EndRequested, NewIdEvent
from ottla.core.txn.machine import EPOCH_BUMP_VERSION
from ottla.core.txn.records import NO_EPOCH

if TYPE_CHECKING:
    from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponseDict

_FIRST_WITH_FENCED = 2
_FIRST_WITH_BUMP = 5


class Coordinator(TransactionSubmitter, Protocol):
    def wants_producer_id(self, event: NewIdEvent) -> bool: ...

    async def submit_with_id(self, event: NewIdEvent) -> None: ...


class Ports(Protocol):
    """The parts of a broker that EndTxn uses."""

    @property
    def transaction_coordinator(self) -> Coordinator: ...


def handle(
    broker: Ports, context: RequestContext, request: EndTxnRequest
) -> Response[EndTxnResponseDict]:
    version = context.api_version
    if not context.may(WRITE_TRANSACTIONAL_ID, request.transactional_id):
        return _error(WRITE_TRANSACTIONAL_ID.error, version)
    if not request.transactional_id:
        return _error(ErrorCode.INVALID_REQUEST, version)

    def finish(body: EndTxnResponseDict) -> EndTxnResponseDict:
        code = body["error_code"]
        return body if code == ErrorCode.NONE else _error(ErrorCode(code), version)

    delayed = DelayedResponse(lambda code: _error(code, version))
    event = EndRequested(
        ConvertedToken(delayed, finish),
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        request.committed,
        client_version=EPOCH_BUMP_VERSION if version >= _FIRST_WITH_BUMP else 0,
    )
    coordinator = broker.transaction_coordinator
    if version >= _FIRST_WITH_BUMP and coordinator.wants_producer_id(event):
        return _end_with_new_id(broker, version, event, delayed)
    coordinator.submit(event)
    return delayed.response()


async def _end_with_new_id(
    broker: Ports, version: int, event: EndRequested, delayed: DelayedResponse[EndTxnResponseDict]
) -> EndTxnResponseDict | None:
    try:
        await broker.transaction_coordinator.submit_with_id(event)
    except KafkaError as error:
        return _error(error.code, version)
    return await delayed.wait()


def _error(code: ErrorCode, version: int) -> EndTxnResponseDict:
    if code == ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"error_code": code, "producer_id": NO_PRODUCER_ID, "producer_epoch": NO_EPOCH}
