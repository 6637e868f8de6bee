"""The contract between operators with Python state and what runs them.

A program is called with a bucket's state and what came for it in a micro-batch, and again, with no
records, once stream time has reached `next_time_ms`. It changes the state and returns records. It
must not look at a clock: time is an argument, so that a batch that is run again after a crash gives
the same. A program that goes by the clock on the wall, too, is called when that has reached
`next_tick_ms`; its times come with the batch, out of the query's offsets (see `clock_source`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

BUCKETS = 128
"""Keys are spread over so many; a bucket's state is written whole when one of its keys changes. Old
checkpoints mean nothing under another number."""

State = dict[Any, Any]
"""Of one bucket. Empty at first; what is empty is not kept."""


@dataclass(frozen=True)
class Batch:
    """Records in order; `sides` says which input each came from, if there are several. The time on
    the wall is 0 where no program asks for it; `is_tick` says that the clock has moved on."""

    keys: Sequence[Any] = ()
    values: Sequence[Any] = ()
    times_ms: Sequence[int] = ()
    sides: Sequence[int] = ()
    wall_clock_ms: int = 0
    is_tick: bool = False


class Output(NamedTuple):
    """A record. With `late` it is one that came too late, as it came."""

    key: Any
    value: Any
    at_ms: int
    window: tuple[int, int] | None = None
    late: Any = None


class Program(Protocol):
    @property
    def needs_time(self) -> bool:
        """Whether it is called again when time passes."""

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        """Change the state, and give out records."""

    def next_time_ms(self, state: State) -> int | None:
        """The stream time at which there is something to do without records."""


class ClockProgram(Program, Protocol):
    """One that goes by the clock on the wall, too."""

    def next_tick_ms(self, state: State) -> int | None:
        """The time on the wall at which there is something to do without records."""
