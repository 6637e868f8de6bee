"""Processors of the user, and deduplication."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.streams.durations import Duration, duration_ms, format_duration
from ottla.streams.errors import topology_error
from ottla.streams.operators.checks import (
    refuse_second_state,
    refuse_untyped,
    shape_of,
)
from ottla.streams.plan.node import Function, Node, UnaryNode
from ottla.streams.plan.shapes import parse_shape
from ottla.streams.plan.tracing import (
    InPython,
    Traced,
    fingerprint_of_class,
    format_function,
    trace,
)
from ottla.streams.state.processors import Processor, has_wall_clock

DEFAULT_CLOCK_INTERVAL = "1 second"
"""Default interval at which processors check the wall clock."""
MIN_CLOCK_MS = 100


@dataclass(frozen=True, eq=False)
class Processed(UnaryNode):
    """Processor of the user, created by `factory`.

    `clock_ms` is the interval of wall-clock ticks, or None if the processor does not use them.
    """

    factory: Callable[[], Processor]
    name: str
    fingerprint: str
    clock_ms: int | None = None

    @property
    def is_windowed(self) -> bool:
        return False

    @property
    def fingerprints(self) -> Iterator[str]:
        yield self.fingerprint

    @property
    def state_word(self) -> str:
        return "processed"

    @property
    def engine(self) -> str:
        if self.clock_ms is None:
            return "Python state"
        return f"Python state; the clock every {format_duration(self.clock_ms)}"

    def describe(self) -> tuple[str, str]:
        by = "" if self.clock_ms is None else ", by the wall clock too"
        return "process", f"{self.name}{by} -> {self.key}: {self.value}"


def processed(
    node: Node, processor: Any, schema: str, key_schema: str | None, clock: Duration | None
) -> Processed:
    refuse_second_state("process", node)
    made: object = processor() if callable(processor) else processor
    if not isinstance(made, Processor):
        raise topology_error("process", f"{processor!r} does not create an st.Processor")
    kind = type(made)
    if kind.process is Processor.process:
        raise topology_error("process", f"{kind.__name__} does not define process(self, record)")
    key = node.key if key_schema is None else parse_shape(key_schema)
    refuse_untyped("process", node.key, node.value, key)
    return Processed(
        key,
        parse_shape(schema),
        node,
        processor,
        kind.__name__,
        fingerprint_of_class(kind),
        _clock_ms(kind, clock),
    )


def _clock_ms(kind: type[Processor], clock: Duration | None) -> int | None:
    if has_wall_clock(kind):
        return duration_ms(clock or DEFAULT_CLOCK_INTERVAL, name="clock", min_ms=MIN_CLOCK_MS)
    if clock is not None:
        raise topology_error(
            "process",
            f"clock={clock!r} needs on_wall_clock, which {kind.__name__} does not define",
        )
    return None


@dataclass(frozen=True, eq=False)
class Deduplicated(UnaryNode):
    """First record of each result of the function, within a period."""

    function: Traced
    within_ms: int

    @property
    def functions_used(self) -> tuple[Function, ...]:
        return (self.function,)

    @property
    def state_word(self) -> str:
        return "deduplicated"

    @property
    def watermark_delay_ms(self) -> int:
        return self.within_ms

    @property
    def engine(self) -> str:
        return "state"

    def describe(self) -> tuple[str, str]:
        within = format_duration(self.within_ms)
        return "deduplicate", f"{format_function(self.function)} within {within}"


def deduplicated(node: Node, function: Callable[..., Any], within: Duration) -> Deduplicated:
    refuse_second_state("deduplicate", node)
    made = trace("deduplicate", function, node.key, node.value)
    if isinstance(made, InPython):
        raise topology_error(
            "deduplicate",
            f"the function would run in Python ({made.reason}); compute the identifier with "
            "select_key or map_values first, and return that column here",
        )
    shape_of("deduplicate", made, None)
    within_ms = duration_ms(within, name="within", min_ms=1)
    return Deduplicated(node.key, node.value, node, made, within_ms)
