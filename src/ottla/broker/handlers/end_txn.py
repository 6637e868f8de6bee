"""EndTxn (key 26), versions 0–5: commit or abort of a transaction.

- The response is sent when the decision is committed; the markers follow. A repeated request gets
  the same response, or CONCURRENT_TRANSACTIONS while markers are being written.
- Version 5 (KIP-890): the end bumps the producer epoch. The response has the new epoch, or a new
  producer ID if the epochs are exhausted. An abort succeeds even if no partition was added.
- PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.parked_request import ParkedRequest
from ottla.core.coordinator import Producer
from ottla.core.txn.events import EndRequested
from ottla.core.txn.machine import EPOCH_BUMP_VERSION
from ottla.core.txn.shard import NO_IDENTITY

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

API_KEY = 26
_FIRST_WITH_FENCED = 2
_FIRST_WITH_BUMP = 5


def handle(broker: Broker, context: RequestContext, request: Any) -> Response:
    version = context.api_version
    if not request.transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST, version)

    def finish(body: Body) -> Body:
        code = body["error_code"]
        return body if code == ErrorCode.NONE else _refused(code, version)

    parked = ParkedRequest(lambda code: _refused(code, version), finish)
    event = EndRequested(
        parked,
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        request.committed,
        client_version=EPOCH_BUMP_VERSION if version >= _FIRST_WITH_BUMP else 0,
    )
    coordinator = broker.transaction_coordinator
    if version >= _FIRST_WITH_BUMP and coordinator.wants_producer_id(event):
        return _end_with_new_id(broker, version, event, parked)
    coordinator.submit(event)
    return parked.response()


async def _end_with_new_id(
    broker: Broker, version: int, event: EndRequested, parked: ParkedRequest
) -> Body | None:
    try:
        await broker.transaction_coordinator.submit_with_id(event)
    except KafkaError as error:
        return _refused(error.code, version)
    response = parked.response()
    return response if isinstance(response, dict) else await response  # type: ignore[misc]


def _refused(code: ErrorCode, version: int) -> Body:
    if code == ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return {**NO_IDENTITY, "error_code": code}
