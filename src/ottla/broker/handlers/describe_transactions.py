"""DescribeTransactions (key 65), version 0: the state of transactional IDs.

An unknown ID is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.broker.ports import TransactionRequests
from ottla.core.txn.events import DescribeRequested

if TYPE_CHECKING:
    from ottla.wire.messages.describe_transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponseDict,
        TransactionStateDict,
    )


def handle(
    broker: TransactionRequests, context: RequestContext, request: DescribeTransactionsRequest
) -> Response[DescribeTransactionsResponseDict]:
    ids = request.transactional_ids

    def finish(states: list[TransactionStateDict]) -> DescribeTransactionsResponseDict:
        return {
            "transaction_states": [
                {**state, "transactional_id": id} for id, state in zip(ids, states, strict=True)
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


def _error(code: ErrorCode) -> TransactionStateDict:
    return {"error_code": code}
