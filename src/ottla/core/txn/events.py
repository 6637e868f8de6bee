"""Events of the transaction coordinator: requests, timeouts and progress.

Requests carry a token for the response. An event carries a new producer id if the shard needs one
(`TransactionShard.needs_producer_id`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.core.coordinator import ProducerIdAndEpoch, Token
from ottla.core.txn.records import NO_PRODUCER_ID, TransactionState


@dataclass(slots=True)
class TransactionEvent:
    """An event that concerns one transactional id."""

    token: Token | None
    transactional_id: str

    @property
    def key(self) -> str | None:
        return self.transactional_id

    @property
    def commutes(self) -> bool:
        return False


# ------------------------------------------------------------------------------------- requests


@dataclass(slots=True)
class InitRequested(TransactionEvent):
    timeout_ms: int
    expected: ProducerIdAndEpoch | None = None
    """The producer's current id and epoch (KIP-360), or None if it has just started."""
    two_phase_commit: bool = False
    keep_prepared: bool = False
    new_producer_id: int = NO_PRODUCER_ID


@dataclass(slots=True)
class AddPartitionsRequested(TransactionEvent):
    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]
    client_version: int = 0
    """Transaction version; in 2, partitions are added just before the first write to them."""


@dataclass(slots=True)
class VerifyRequested(TransactionEvent):
    """Transaction verification: check that the partitions are part of the transaction."""

    producer: ProducerIdAndEpoch
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class EndRequested(TransactionEvent):
    producer: ProducerIdAndEpoch
    commit: bool
    client_version: int = 0
    new_producer_id: int = NO_PRODUCER_ID


@dataclass(slots=True)
class DescribeRequested(TransactionEvent):
    pass


class ListFilters(NamedTuple):
    """Filters of ListTransactions; empty or negative values match everything."""

    producer_ids: frozenset[int] = frozenset()
    states: frozenset[TransactionState] | None = None
    """States to include, or None for all."""
    duration_ms: int = -1
    """Minimum time since the start of the transaction."""


@dataclass(slots=True)
class ListRequested:
    token: Token | None
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
