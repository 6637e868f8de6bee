"""Sources, operators and sinks as values. Each knows the shape of its keys and values.

The records of a stream are events; those of a table are the changes of the latest value of each
key. A node with `emits_changes` updates earlier output rather than only appending to it, which
decides how a sink writes it (Spark's update mode) and what may be built on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.streams.aggregates import Aggregate
from ottla.streams.plan.shapes import DataShape
from ottla.streams.plan.tracing import InPython, Traced
from ottla.streams.serdes import DeadLetter, Serde
from ottla.streams.state.folds import Add, Fold
from ottla.streams.state.processors import Processor
from ottla.streams.windows import Window

Function = Traced | InPython


@dataclass(frozen=True, eq=False)
class Node:
    key: DataShape
    value: DataShape

    @property
    def parents(self) -> tuple[Node, ...]:
        return ()

    @property
    def emits_changes(self) -> bool:
        return any(parent.emits_changes for parent in self.parents)

    @property
    def is_windowed(self) -> bool:
        """Whether each key has a window."""
        return any(parent.is_windowed for parent in self.parents)


@dataclass(frozen=True, eq=False)
class Source(Node):
    topic: str
    key_serde: Serde
    value_serde: Serde
    time: Function | None
    start: str
    bad_records: str | DeadLetter
    is_table: bool


@dataclass(frozen=True, eq=False)
class BadRecords(Node):
    """Records of a topic that cannot be parsed, as bytes."""

    source: Source


@dataclass(frozen=True, eq=False)
class Failures(Node):
    """Records on which the functions of these operators raised, as they reached the operator."""

    operators: tuple[Node, ...]

    @property
    def parents(self) -> tuple[Node, ...]:
        return self.operators


@dataclass(frozen=True, eq=False)
class UnaryNode(Node):
    parent: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)


@dataclass(frozen=True, eq=False)
class Filter(UnaryNode):
    function: Function
    negated: bool


@dataclass(frozen=True, eq=False)
class MapValues(UnaryNode):
    """Map over values. `keeps_null` is set for tables, where a null deletes the key."""

    function: Function
    keeps_null: bool = False


@dataclass(frozen=True, eq=False)
class FlatMapValues(UnaryNode):
    function: Function


@dataclass(frozen=True, eq=False)
class Map(UnaryNode):
    """Map with a function that returns (key, value)."""

    function: Function

    @property
    def is_windowed(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class FlatMap(UnaryNode):
    """Map with a function that returns a list of (key, value)."""

    function: Function

    @property
    def is_windowed(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class TableFilter(UnaryNode):
    """Filter of a table, which deletes rows that do not pass: their value becomes null."""

    function: Function
    negated: bool


@dataclass(frozen=True, eq=False)
class Peek(UnaryNode):
    """Call of a function for each record; its result is ignored."""

    function: Function


@dataclass(frozen=True, eq=False)
class Repartitioned(UnaryNode):
    partitions: int


@dataclass(frozen=True, eq=False)
class Transformed(UnaryNode):
    """Function of the user from DataFrame to DataFrame, with the columns key, value, timestamp."""

    function: InPython


@dataclass(frozen=True, eq=False)
class FrameSource(Node):
    """Streaming DataFrame of the user."""

    rows: Any


@dataclass(frozen=True, eq=False)
class Deduplicated(UnaryNode):
    """First record of each result of the function, within a period."""

    function: Function
    within_ms: int


@dataclass(frozen=True, eq=False)
class SelectKey(UnaryNode):
    function: Function

    @property
    def is_windowed(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Merge(Node):
    left: Node
    right: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Aggregated(UnaryNode):
    """Aggregation in Spark's state, per key, and per window if there is one."""

    window: Window | None
    aggregates: tuple[tuple[str, Aggregate], ...]

    @property
    def emits_changes(self) -> bool:
        return True

    @property
    def is_windowed(self) -> bool:
        return self.window is not None


@dataclass(frozen=True, eq=False)
class Suppressed(UnaryNode):
    """Suppression of intermediate results.

    Without a limit, only the final value of a window is emitted, when the window closes. With a
    limit, a key's changes are emitted at most once in `limit_ms` of event time.
    """

    limit_ms: int | None = None

    @property
    def emits_changes(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class PythonAggregated(UnaryNode):
    """Aggregation in Python state with `fold`, per key, and per window if there is one.

    Late records go to the topic of `late`. `operator`, `what` and `why` describe the node in
    `explain`; `outcome` is the value without the columns of the window.
    """

    operator: str
    what: str
    why: str
    fold: Fold
    outcome: DataShape
    window: Window | None
    late: DeadLetter | None
    functions: tuple[InPython, ...]

    @property
    def is_windowed(self) -> bool:
        return self.window is not None


@dataclass(frozen=True, eq=False)
class Changing(UnaryNode):
    """Old and new values of a table: the first step of grouping it by another key."""


@dataclass(frozen=True, eq=False)
class TableAggregated(UnaryNode):
    """Aggregation of the changes: the second step of grouping a table by another key.

    `function` returns the new key of a value of shape `input_shape`; old values are subtracted
    and new ones added.
    """

    input_shape: DataShape
    function: Function
    operator: str
    what: str
    fold: Fold
    subtract: Add
    functions: tuple[InPython, ...]


@dataclass(frozen=True, eq=False)
class Processed(UnaryNode):
    """Processor of the user, created by `make`.

    `clock_ms` is the interval of wall-clock ticks, or None if the processor does not use them.
    """

    factory: Callable[[], Processor]
    name: str
    fingerprint: str
    clock_ms: int | None = None

    @property
    def is_windowed(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class TablesJoin(Node):
    """Join of two tables by key. A change of either changes the result."""

    left: Node
    right: Node
    how: str
    function: Function

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Subscribing(UnaryNode):
    """Rows of a table with their old and new foreign key: the first step of a foreign-key join.

    The value is (before, now, value).
    """

    foreign_key: DataShape
    function: Function


@dataclass(frozen=True, eq=False)
class ForeignJoin(Node):
    """Second step of a foreign-key join; `left` is the topic that the first step writes."""

    left: Source
    right: Node
    left_value: DataShape
    how: str
    function: Function

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Lookup(Node):
    """Join of each record of a stream with the row of a global table for `on`."""

    left: Node
    table: Source
    on: Function
    on_shape: DataShape
    how: str
    function: Function

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.table)


@dataclass(frozen=True, eq=False)
class StreamJoin(Node):
    left: Node
    right: Node
    how: str
    within_ms: int
    grace_ms: int
    function: Function

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class TableJoin(Node):
    """Join of each record of a stream with the row of a table for its key, in the micro-batch."""

    left: Node
    table: Source
    how: str
    function: Function

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.table)


@dataclass(frozen=True, eq=False)
class Sink(UnaryNode):
    topic: str
    key_serde: Serde
    value_serde: Serde
    has_window_in_key: bool
    is_internal: bool = False
    """Whether the topic is internal, between two queries of the application."""

    @property
    def late_topic(self) -> str | None:
        """Topic of records that arrive too late for the windows of this sink."""
        folded = self.parent.parent if isinstance(self.parent, Suppressed) else self.parent
        if isinstance(folded, PythonAggregated) and folded.late is not None:
            return folded.late.topic
        return None


@dataclass(frozen=True, eq=False)
class Printed(Sink):
    """Sink that writes to standard output; `topic` is the label at the start of each line."""


def ancestors(node: Node) -> list[Node]:
    """Return the node and all nodes upstream of it, without duplicates, parents first."""
    found: list[Node] = []

    def visit(each: Node) -> None:
        if any(each is one for one in found):
            return
        for parent in each.parents:
            visit(parent)
        found.append(each)

    visit(node)
    return found
