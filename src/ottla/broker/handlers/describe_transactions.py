"""DescribeTransactions (key 65), version 0: the state of transactional IDs.

An unknown ID is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST."""

from __future__ import annotations

from typing import Any

from ottla.base.errors import ErrorCode
from ottla.broker.context import Body, RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.broker.ports import TransactionRequests
from ottla.core.txn.events import DescribeRequested

API_KEY = 65


def handle(broker: TransactionRequests, context: RequestContext, request: Any) -> Response:
    ids = request.transactional_ids

    def finish(states: list[Body]) -> Body:
        return {
            "transaction_states": [
                {"transactional_id": id, **state} for id, state in zip(ids, states, strict=True)
            ]
        }

    delayed = DelayedResponses(finish)
    for transactional_id in ids:
        if transactional_id:
            token = delayed.add_pending(_error)
            broker.transaction_coordinator.submit(DescribeRequested(token, transactional_id))
        else:
            delayed.add_body(_error(ErrorCode.INVALID_REQUEST))
    return delayed.response()


def _error(code: ErrorCode) -> Body:
    return {"error_code": code}
