"""Events of the transaction coordinator: requests, timeouts and progress.

Requests carry a token for the response. An event carries a new producer id if the shard needs one
(`TransactionShard.needs_producer_id`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Never, TypedDict

from ottla.base.errors import ErrorCode
from ottla.base.types import TopicPartition
from ottla.core.coordinator import ProducerIdAndEpoch, Token
from ottla.core.txn.records import NO_PRODUCER_ID, TransactionState

if TYPE_CHECKING:
    from ottla.wire.messages import describe_transactions, list_transactions
    from ottla.wire.messages.end_txn import EndTxnResponseDict
    from ottla.wire.messages.init_producer_id import InitProducerIdResponseDict


@dataclass(slots=True)
class TransactionEvent:
    """An event that concerns one transactional id."""

    token: Token[Never] | None
    transactional_id: str

    @property
    def key(self) -> str | None:
        return self.transactional_id

    @property
    def commutes(self) -> bool:
        return False


# ------------------------------------------------------------------------------------- requests


class PartitionCodes(TypedDict, total=False):
    """The reply to a request about partitions: one error for all of them, or those that failed."""

    error_code: ErrorCode
    errors: dict[TopicPartition, ErrorCode]


class ListedTransactions(TypedDict, total=False):
    """The reply to `ListRequested`: an error, or the transactions that match."""

    error_code: ErrorCode
    transactions: list[list_transactions.TransactionStateDict]


@dataclass(slots=True)
class InitRequested(TransactionEvent):
    token: Token[InitProducerIdResponseDict] | None
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    """The producer's current id and epoch (KIP-360), or None if it has just started."""
    new_producer_id: int = NO_PRODUCER_ID


@dataclass(slots=True)
class AddPartitionsRequested(TransactionEvent):
    token: Token[PartitionCodes] | None
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    client_version: int = 0
    """Transaction version; in 2, partitions are added just before the first write to them."""


@dataclass(slots=True)
class VerifyRequested(TransactionEvent):
    """Transaction verification: check that the partitions are part of the transaction."""

    token: Token[PartitionCodes] | None
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class EndRequested(TransactionEvent):
    token: Token[EndTxnResponseDict] | None
    producer: ProducerIdAndEpoch
    commit: bool
    client_version: int = 0
    new_producer_id: int = NO_PRODUCER_ID


@dataclass(slots=True)
class DescribeRequested(TransactionEvent):
    token: Token[describe_transactions.TransactionStateDict] | None


class ListFilters(NamedTuple):
    """Filters of ListTransactions; empty or negative values match everything."""

    producer_ids: frozenset[int] = frozenset()
    states: frozenset[TransactionState] | None = None
    """States to include, or None for all."""
    duration_ms: int = -1
    """Minimum time since the start of the transaction."""


@dataclass(slots=True)
class ListRequested:
    token: Token[ListedTransactions] | None
    filters: ListFilters

    @property
    def key(self) -> str | None:
        return None

    @property
    def commutes(self) -> bool:
        return False


# --------------------------------------------------------------------------- the coordinator itself


@dataclass(slots=True)
class TimeoutPassed(TransactionEvent):
    """A transaction has been open for longer than its timeout and must be aborted."""

    producer: ProducerIdAndEpoch
    new_producer_id: int = NO_PRODUCER_ID


NewIdEvent = InitRequested | EndRequested | TimeoutPassed
"""Events that may need a new producer id."""


@dataclass(slots=True)
class IdExpired(TransactionEvent):
    """A transactional id has not been used for so long that it may be deleted."""


@dataclass(slots=True)
class MarkersDue(TransactionEvent):
    """The loaded log has a prepared transaction, whose markers must be written now."""


@dataclass(slots=True)
class MarkersWritten(TransactionEvent):
    """All partitions of a transaction have its marker."""

    producer: ProducerIdAndEpoch


@dataclass(slots=True)
class CompletionNotWritten(TransactionEvent):
    """All markers are written, but the Complete record could not be, and must be retried."""

    producer: ProducerIdAndEpoch
