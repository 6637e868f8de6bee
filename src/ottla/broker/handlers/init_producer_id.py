"""InitProducerId (key 22), versions 0–6: an id for an idempotent producer.

Ids are handed out from blocks that are reserved in the metadata store, so none is ever given twice.
A transactional id is refused with a sentence in the log: this broker has no transactions yet."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ottla.base.errors import ErrorCode, KafkaError
from ottla.broker.context import Body, RequestContext

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

API_KEY = 22
FIRST_EPOCH = 0

logger = logging.getLogger(__name__)


async def handle(broker: Broker, context: RequestContext, request: Any) -> Body:
    if request.transactional_id is not None:
        logger.warning(
            "client %s asked for transactions, which this broker does not have", context.client_id
        )
        return {
            "error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "producer_id": -1,
            "producer_epoch": -1,
        }
    try:
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return {"error_code": error.code, "producer_id": -1, "producer_epoch": -1}
    return {"producer_id": producer_id, "producer_epoch": FIRST_EPOCH}
