"""ListTransactions (key 66), versions 0–2: the transactional IDs that this broker coordinates.

- Filters by state and producer ID; by the age of a transaction (version 1, KIP-994); by a regular
  expression for the whole ID (version 2, KIP-1152). A transaction must match every filter given.
- An unknown state is returned in `unknown_state_filters`, and matches nothing.
- While any partition of the transaction topic is loading: COORDINATOR_LOAD_IN_PROGRESS.
- An invalid expression is INVALID_REGULAR_EXPRESSION.
- With an authorizer, only the IDs on which the client has DESCRIBE are listed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ottla.base.errors import ErrorCode
from ottla.broker.context import RequestContext, Response
from ottla.broker.delayed_response import DelayedResponses
from ottla.core.coordinator import Token
from ottla.core.group.topic_pattern import InvalidPattern, compile_pattern
from ottla.core.security.permissions import DESCRIBE_TRANSACTIONAL_ID
from ottla.core.txn.events import ListedTransactions, ListFilters
from ottla.core.txn.records import TransactionState

if TYPE_CHECKING:
    from ottla.wire.messages.list_transactions import (
        ListTransactionsRequest,
        ListTransactionsResponseDict,
    )

_STATES = {state.label: state for state in TransactionState}


class Coordinator(Protocol):
    def list_transactions(
        self, filters: ListFilters, new_token: Callable[[], Token[ListedTransactions]]
    ) -> None: ...


class Ports(Protocol):
    """The parts of a broker that ListTransactions uses."""

    @property
    def transaction_coordinator(self) -> Coordinator: ...


def handle(
    broker: Ports, context: RequestContext, request: ListTransactionsRequest
) -> Response[ListTransactionsResponseDict]:
    states = None
    if request.state_filters:
        states = frozenset(_STATES[name] for name in request.state_filters if name in _STATES)
    filters = ListFilters(frozenset(request.producer_id_filters), states, request.duration_filter)
    try:
        matches = _matcher(request.transactional_id_pattern)
    except InvalidPattern:
        return _error(ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [name for name in request.state_filters if name not in _STATES]

    def finish(parts: list[ListedTransactions]) -> ListTransactionsResponseDict:
        for part in parts:
            if "error_code" in part:
                return _error(part["error_code"])
        found = [
            each
            for part in parts
            for each in part["transactions"]
            if matches(each["transactional_id"])
            and context.may(DESCRIBE_TRANSACTIONAL_ID, each["transactional_id"])
        ]
        return {"unknown_state_filters": unknown, "transaction_states": found}

    delayed = DelayedResponses(finish)
    broker.transaction_coordinator.list_transactions(filters, lambda: delayed.add_pending(_failed))
    return delayed.response()


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    """Return the predicate for a pattern; an empty one matches all. Raises InvalidPattern."""
    return compile_pattern(pattern).matches if pattern else lambda _: True


def _error(code: ErrorCode) -> ListTransactionsResponseDict:
    return {"error_code": code}


def _failed(code: ErrorCode) -> ListedTransactions:
    return {"error_code": code}
