"""Interface between programs with Python state and their runner.

The runner calls a program with the state of a bucket and its records of a micro-batch, and again,
without records, once stream time has reached `next_time_ms`. The program changes the state and
returns records. It must not read a clock: time is an argument, so that a batch that is repeated
after a crash has the same result. A program that also uses the wall clock is called when this has
reached `next_tick_ms`; its time comes with the batch, from the query's offsets (see
`clock_source`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

BUCKETS = 128
"""Number of buckets over which keys are distributed. The whole state of a bucket is written when
one of its keys changes. Another number would invalidate existing checkpoints."""

State = dict[Any, Any]
"""State of one bucket. It is empty at first, and an empty one is not kept."""


@dataclass(frozen=True)
class Batch:
    """Records in order, with the input (`sides`) of each if there are several.

    `wall_clock_ms` is 0 for programs that do not use it. `is_tick` is set if the wall clock has
    advanced.
    """

    keys: Sequence[Any] = ()
    values: Sequence[Any] = ()
    times_ms: Sequence[int] = ()
    sides: Sequence[int] = ()
    wall_clock_ms: int = 0
    is_tick: bool = False


class Output(NamedTuple):
    """Output record. `late` holds the unchanged value of a record that arrived too late."""

    key: Any
    value: Any
    at_ms: int
    window: tuple[int, int] | None = None
    late: Any = None


class Program(Protocol):
    @property
    def needs_time(self) -> bool:
        """Whether the program is called again when stream time advances."""

    def run(self, state: State, batch: Batch, stream_time_ms: int) -> Iterable[Output]:
        """Update the state and return the output records."""

    def next_time_ms(self, state: State) -> int | None:
        """Return the stream time at which the program must run without records, or None."""


class ClockProgram(Program, Protocol):
    """Program that also uses the wall clock."""

    def next_tick_ms(self, state: State) -> int | None:
        """Return the wall-clock time at which the program must run without records, or None."""
