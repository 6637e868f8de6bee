"""DescribeTransactions (key 65), version 0: the state of transactional IDs.

An unknown ID is TRANSACTIONAL_ID_NOT_FOUND, an empty one INVALID_REQUEST.

With an authorizer, the client needs DESCRIBE on each ID, or else that transaction is
TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Topics on which it does not have DESCRIBE are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.broker.ports import TransactionRequests
from ottla.core.security.permissions import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
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
                {**_visible(context, state), "transactional_id": id}
                for id, state in zip(ids, states, strict=True)
            ]
        }

    delayed = DelayedResponses(finish)
    for transactional_id in ids:
        if not context.may(DESCRIBE_TRANSACTIONAL_ID, transactional_id):
            delayed.add_body(_error(DESCRIBE_TRANSACTIONAL_ID.error))
        elif transactional_id:
            token = delayed.add_pending(_error)
            broker.transaction_coordinator.submit(DescribeRequested(token, transactional_id))
        else:
            delayed.add_body(_error(ErrorCode.INVALID_REQUEST))
    return delayed.response()


def _visible(context: RequestContext, state: TransactionStateDict) -> TransactionStateDict:
    """Return the transaction with only those topics that the client may describe."""
    if context.access is None or "topics" not in state:
        return state
    topics = [each for each in state["topics"] if context.may(DESCRIBE_TOPIC, each["topic"])]
    return {**state, "topics": topics}


def _error(code: ErrorCode) -> TransactionStateDict:
    return {"error_code": code}
