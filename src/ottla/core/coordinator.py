"""Interface between a coordinator and the runtime that drives it (broker/coordinator_runtime.py).

A coordinator keeps its state as records in the partitions of an internal topic. A `Shard` is the
state of one such partition.

    event ──► decide(event, now) ──► Decision ──► records ──► the log ──► apply(record), one by one
                                         │                                        ▲
                                         ├──► timers: at once                loading the log
                                         └──► responses: once every record that the decision
                                              depends on is committed

Invariants
1. State that must survive a crash is changed only by `apply`, which is also how a shard is loaded.
   `decide` may change other state in place: delayed requests, a rebalance in progress.
2. `decide` and `apply` use no clock, no randomness and no I/O: the event carries time and new ids.
3. If a decision's records cannot be written, no durable state changes. The error replaces its
   responses, and the runtime then decides `if_failed`, which reverts what `decide` changed in
   place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Never, Protocol, TypeVar

from ottla.base.errors import KafkaError

BodyT = TypeVar("BodyT")
BodyT_contra = TypeVar("BodyT_contra", contravariant=True)

NO_PRODUCER_ID = -1


class Token(Protocol[BodyT_contra]):
    """A pending request, with the type of its reply. It must be answered exactly once."""

    def reply(self, body: BodyT_contra) -> None: ...

    def fail(self, error: KafkaError) -> None: ...


class Event(Protocol):
    """An input that a shard decides on."""

    @property
    def key(self) -> str | None:
        """The group or transactional id whose state the event concerns; None if it may concern all.

        Events with different keys do not depend on each other's records.
        """

    @property
    def commutes(self) -> bool:
        """Whether the event can share an append with other commuting events of its key.

        That requires that its decision does not depend on whether their records have been applied.
        """

    @property
    def token(self) -> Token[Never] | None:
        """The request behind the event, which fails if the event cannot be decided."""


class ProducerIdAndEpoch(NamedTuple):
    """The producer of a transaction."""

    id: int
    epoch: int


class SendResponse(NamedTuple):
    """A response of any API. `Decision.respond` has checked that it suits the request."""

    token: Token[Any]
    body: Any


class StartTimer(NamedTuple):
    """Decide `event` after a delay. Restarts a running timer with the same key."""

    key: tuple[str, ...]
    delay_ms: int
    event: Event


class CancelTimer(NamedTuple):
    key: tuple[str, ...]


@dataclass(slots=True)
class Decision:
    """Effects of an event: records to write, responses to send, and timers to start or cancel."""

    records: list[Any] = field(default_factory=list)
    responses: list[SendResponse] = field(default_factory=list)
    timers: list[StartTimer | CancelTimer] = field(default_factory=list)
    if_failed: Event | None = None
    """The event to decide next if the records cannot be written."""
    is_atomic: bool = True
    """Whether all records must be in one batch, so that a crash leaves all of them or none."""
    producer: ProducerIdAndEpoch | None = None
    """The producer whose transaction has the records: they take effect with its commit marker."""

    def respond(self, token: Token[BodyT] | None, body: BodyT) -> None:
        if token is not None:
            self.responses.append(SendResponse(token, body))

    def start_timer(self, key: tuple[str, ...], delay_ms: int, event: Event) -> None:
        self.timers.append(StartTimer(key, delay_ms, event))

    def cancel_timer(self, key: tuple[str, ...]) -> None:
        self.timers.append(CancelTimer(key))


class Shard(Protocol):
    """The state of one partition and the decisions on its events.

    Records are values defined by the shard; only `encode` and `decode` know their binary format.
    """

    def decide(self, event: Any, now_ms: int) -> Decision: ...

    def apply(self, record: Any, offset: int, producer_id: int) -> None:
        """Apply a record from the log.

        Args:
            record: The decoded record.
            offset: The record's offset.
            producer_id: The producer whose transaction has the record, or -1 if there is none.
        """

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply the control record that ends a producer's transaction in this partition."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> Any:
        """Decode a record. May be called from any thread.

        Returns:
            The record, or None if its kind is unknown.

        Raises:
            ValueError: The record is malformed.
        """

    def loaded(self, now_ms: int) -> Decision:
        """Finish loading after the whole log was applied. The decision must have no records."""

    def unload(self) -> list[Token[Never]]:
        """Return the requests that are still pending. The shard is not used afterwards."""
