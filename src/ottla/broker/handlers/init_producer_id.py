"""InitProducerId (key 22), versions 0–6: an id for an idempotent producer.

Ids are handed out from blocks that are reserved in the metadata store, so none is ever given twice.
An empty transactional id and half an identity (a producer id without an epoch, or the other way
round) are INVALID_REQUEST. A producer that comes with an identity and without a transactional id
gets a new one.

Deviation: a transactional id is refused with a sentence in the log: this broker has no transactions
yet."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import Body, RequestContext

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

API_KEY = 22
FIRST_EPOCH = 0
NONE = -1


async def handle(broker: Broker, context: RequestContext, request: Any) -> Body:
    has_half_an_identity = (request.producer_id == NONE) != (request.producer_epoch == NONE)
    if request.transactional_id == "" or has_half_an_identity:
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        broker.client_log.log(
            logging.WARNING,
            f"client {context.client_id!r} asked for transactions, which this broker does not have",
        )
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return _refused(error.code)
    return {"producer_id": producer_id, "producer_epoch": FIRST_EPOCH}


def _refused(code: ErrorCode) -> Body:
    return {"error_code": code, "producer_id": NONE, "producer_epoch": NONE}
