"""What a coordinator is to the runtime that drives it (broker/coordinator_runtime.py).

A coordinator keeps its state as records in one partition of an internal topic. A `Shard` is the
state of one such partition.

    event ──► decide(event, now) ──► Decision ──► records ──► the log ──► apply(record), one by one
                                         │                                        ▲
                                         ├──► timers: at once                loading the log
                                         └──► responses: when all that the decision rests on is
                                              committed

Invariants
1. What must survive a crash changes in `apply` alone, and `apply` is also how a shard loads. What
   need not (who waits for what, a rebalance under way) `decide` changes in place.
2. `decide` and `apply` know no clock, no randomness and no I/O: time and new ids are in the event.
3. A decision whose records cannot be written changes nothing durable: its responses become the
   error, and `if_failed` is decided next, which puts right what `decide` changed in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from ottla.base.errors import KafkaError

Body: TypeAlias = dict[str, Any]

NO_PRODUCER_ID = -1


class Token(Protocol):
    """A request that is to be answered, once."""

    def reply(self, body: Body) -> None: ...

    def fail(self, error: KafkaError) -> None: ...


class Event(Protocol):
    """Something that a shard decides on."""

    @property
    def key(self) -> str | None:
        """Whose state it is about; None: possibly everyone's. Events of different keys do not
        depend on one another's records."""

    @property
    def commutes(self) -> bool:
        """Whether its decision is the same before and after the records of other commuting events
        of its key are applied, so that all of them may share one append."""

    @property
    def token(self) -> Token | None:
        """The request behind it, which is told if the event cannot be decided."""


class Producer(NamedTuple):
    """Who writes in a transaction."""

    id: int
    epoch: int


class SendResponse(NamedTuple):
    token: Token
    body: Body


class StartTimer(NamedTuple):
    """Decide `event` after the delay. A timer of the same key that runs already starts anew."""

    key: tuple[str, ...]
    delay_ms: int
    event: Event


class CancelTimer(NamedTuple):
    key: tuple[str, ...]


@dataclass(slots=True)
class Decision:
    records: list[Any] = field(default_factory=list)
    responses: list[SendResponse] = field(default_factory=list)
    timers: list[StartTimer | CancelTimer] = field(default_factory=list)
    if_failed: Event | None = None
    is_atomic: bool = True
    """Whether all records must be in one batch, so that a crash leaves all of them or none."""
    producer: Producer | None = None
    """Whose transaction the records belong to: they count once its marker says so."""

    def respond(self, token: Token | None, body: Body) -> None:
        if token is not None:
            self.responses.append(SendResponse(token, body))

    def start_timer(self, key: tuple[str, ...], delay_ms: int, event: Event) -> None:
        self.timers.append(StartTimer(key, delay_ms, event))

    def cancel_timer(self, key: tuple[str, ...]) -> None:
        self.timers.append(CancelTimer(key))


class Shard(Protocol):
    """The state of one partition, and what to do about each event. Records are the shard's own
    values; only `encode` and `decode` know their bytes."""

    def decide(self, event: Any, now_ms: int) -> Decision: ...

    def apply(self, record: Any, offset: int, producer_id: int) -> None:
        """`producer_id` is that of the transaction that the record belongs to, or -1."""

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The marker by which a transaction ends in this partition."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> Any:
        """The record, or None for a kind that is not known here. ValueError: it is malformed. May
        be called in any thread."""

    def loaded(self, now_ms: int) -> Decision:
        """Everything in the log has been applied. The decision has no records."""

    def unload(self) -> list[Token]:
        """The requests that still wait; the state is not used again."""
