"""What happens to transactions: requests, and what the coordinator itself finds out.

Requests carry a token to answer them by. New producer ids come with the event, where the shard has
said that it will need one (`TransactionShard.wants_producer_id`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.types import TopicPartition
from ottla.core.coordinator import Producer, Token
from ottla.core.txn.records import NO_PRODUCER_ID, TransactionState


@dataclass(slots=True)
class TransactionEvent:
    """About one transactional id."""

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
    expected: Producer | None = None
    """What the producer takes itself to be (KIP-360); None: it has just begun."""
    two_phase_commit: bool = False
    keep_prepared: bool = False
    new_producer_id: int = NO_PRODUCER_ID


@dataclass(slots=True)
class AddPartitionsRequested(TransactionEvent):
    producer: Producer
    partitions: frozenset[TopicPartition]
    client_version: int = 0
    """2: the partitions are added because something is about to be written to them."""


@dataclass(slots=True)
class VerifyRequested(TransactionEvent):
    """Are these partitions part of the transaction?"""

    producer: Producer
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class EndRequested(TransactionEvent):
    producer: Producer
    commit: bool
    client_version: int = 0
    new_producer_id: int = NO_PRODUCER_ID


@dataclass(slots=True)
class DescribeRequested(TransactionEvent):
    pass


class ListFilters(NamedTuple):
    """Empty, or negative: everything."""

    producer_ids: frozenset[int] = frozenset()
    states: frozenset[TransactionState] | None = None
    """None: in any state."""
    duration_ms: int = -1
    """Those that began longer ago."""


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


# ------------------------------------------------------------------------------ the broker's own


@dataclass(slots=True)
class TimeoutPassed(TransactionEvent):
    """A transaction has been open for longer than its timeout: abort it."""

    producer: Producer
    new_producer_id: int = NO_PRODUCER_ID


NewIdEvent = InitRequested | EndRequested | TimeoutPassed
"""Events that may need a new producer id."""


@dataclass(slots=True)
class IdExpired(TransactionEvent):
    """A transactional id has not been used for so long that it may be forgotten."""


@dataclass(slots=True)
class MarkersDue(TransactionEvent):
    """A decision was found in the log when the shard was loaded: write its markers."""


@dataclass(slots=True)
class MarkersWritten(TransactionEvent):
    """All partitions of a transaction know its end."""

    producer: Producer


@dataclass(slots=True)
class CompletionNotWritten(TransactionEvent):
    """All markers are written, but the record that says so could not be: write it later."""

    producer: Producer
