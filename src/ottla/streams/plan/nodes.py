"""Sources, operators and sinks, as values. Each knows the shape of its records' keys and values.

A stream's records are events; a table's are the latest value of each key, and what comes out of one
is its changes. `emits_changes` says that a node's output is updated rather than only added to,
which decides how a sink writes it (Spark's update mode) and what may be built upon it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.streams.aggregates import Aggregate
from ottla.streams.plan.shapes import Shape
from ottla.streams.plan.tracing import InPython, Traced
from ottla.streams.serdes import DeadLetter, Serde
from ottla.streams.state.folds import Add, Fold
from ottla.streams.state.processors import Processor
from ottla.streams.windows import Window

Function = Traced | InPython


@dataclass(frozen=True, eq=False)
class Node:
    key: Shape
    value: Shape

    @property
    def parents(self) -> tuple[Node, ...]:
        return ()

    @property
    def emits_changes(self) -> bool:
        return any(parent.emits_changes for parent in self.parents)

    @property
    def is_windowed(self) -> bool:
        """Keys have a window beside them."""
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
    """The records of a topic that cannot be parsed, as bytes."""

    source: Source


@dataclass(frozen=True, eq=False)
class Failures(Node):
    """Records for which the functions of these operators raised, as they came to them."""

    operators: tuple[Node, ...]

    @property
    def parents(self) -> tuple[Node, ...]:
        return self.operators


@dataclass(frozen=True, eq=False)
class OneParent(Node):
    parent: Node

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.parent,)


@dataclass(frozen=True, eq=False)
class Filter(OneParent):
    function: Function
    negated: bool


@dataclass(frozen=True, eq=False)
class MapValues(OneParent):
    """`keeps_null`: of tables, where no value is a deleted key."""

    function: Function
    keeps_null: bool = False


@dataclass(frozen=True, eq=False)
class FlatMapValues(OneParent):
    function: Function


@dataclass(frozen=True, eq=False)
class Map(OneParent):
    """The function makes (key, value)."""

    function: Function

    @property
    def is_windowed(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class FlatMap(OneParent):
    """The function makes a list of (key, value)."""

    function: Function

    @property
    def is_windowed(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class TableFilter(OneParent):
    """What does not pass is deleted: its value becomes null."""

    function: Function
    negated: bool


@dataclass(frozen=True, eq=False)
class Peek(OneParent):
    """The function is called for each record, and what it returns does not matter."""

    function: Function


@dataclass(frozen=True, eq=False)
class Repartitioned(OneParent):
    partitions: int


@dataclass(frozen=True, eq=False)
class Transformed(OneParent):
    """A user's function from DataFrame to DataFrame, with columns key, value, timestamp."""

    function: InPython


@dataclass(frozen=True, eq=False)
class FrameSource(Node):
    """A streaming DataFrame of the user's."""

    rows: Any


@dataclass(frozen=True, eq=False)
class Deduplicated(OneParent):
    """The first record of each outcome of the function, for so long."""

    function: Function
    within_ms: int


@dataclass(frozen=True, eq=False)
class SelectKey(OneParent):
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
class Aggregated(OneParent):
    """Per key, and per window if there is one."""

    window: Window | None
    aggregates: tuple[tuple[str, Aggregate], ...]

    @property
    def emits_changes(self) -> bool:
        return True

    @property
    def is_windowed(self) -> bool:
        return self.window is not None


@dataclass(frozen=True, eq=False)
class Suppressed(OneParent):
    """Nothing until the window closes, then its last value; or, with a limit, a key's changes at
    most once in so much event time."""

    limit_ms: int | None = None

    @property
    def emits_changes(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class Folded(OneParent):
    """An aggregation in Python's state: what `fold` does with values, per key, and per window if
    there is one. `late` records go to that topic. `operator`, `what` and `why` tell of it;
    `outcome` is the value without the window's columns."""

    operator: str
    what: str
    why: str
    fold: Fold
    outcome: Shape
    window: Window | None
    late: DeadLetter | None
    functions: tuple[InPython, ...]

    @property
    def is_windowed(self) -> bool:
        return self.window is not None


@dataclass(frozen=True, eq=False)
class Changing(OneParent):
    """A table's values before and now: the first step of grouping it by another key."""


@dataclass(frozen=True, eq=False)
class TableFolded(OneParent):
    """The second step, over the records of the first: values of shape `came` by the `function`'s
    key, those of before subtracted, those of now added."""

    came: Shape
    function: Function
    operator: str
    what: str
    fold: Fold
    subtract: Add
    functions: tuple[InPython, ...]


@dataclass(frozen=True, eq=False)
class Processed(OneParent):
    """A user's processor: `make` makes one. `clock_ms`: how often it is to look at the clock on
    the wall, if it does."""

    make: Callable[[], Processor]
    name: str
    fingerprint: str
    clock_ms: int | None = None

    @property
    def is_windowed(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class TablesJoin(Node):
    """Two tables by key: the outcome changes with either."""

    left: Node
    right: Node
    how: str
    function: Function

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Subscribing(OneParent):
    """A table's records with the foreign key they have, and the one they had: the first step of a
    join by foreign key. Its value is (before, now, value)."""

    foreign_key: Shape
    function: Function


@dataclass(frozen=True, eq=False)
class ForeignJoin(Node):
    """The second step: `left` are the records of the first, read from a topic."""

    left: Source
    right: Node
    left_value: Shape
    how: str
    function: Function

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, eq=False)
class Lookup(Node):
    """Each record of a stream with what a global table holds for `on`."""

    left: Node
    table: Source
    on: Function
    on_shape: Shape
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
    """Each record of a stream with what the table holds for its key in the micro-batch."""

    left: Node
    table: Source
    how: str
    function: Function

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.table)


@dataclass(frozen=True, eq=False)
class Sink(OneParent):
    topic: str
    key_serde: Serde
    value_serde: Serde
    has_window_in_key: bool
    is_internal: bool = False
    """A topic of the application's own, between two of its queries."""

    @property
    def late_topic(self) -> str | None:
        """Where records go that came too late for the windows of this sink."""
        folded = self.parent.parent if isinstance(self.parent, Suppressed) else self.parent
        if isinstance(folded, Folded) and folded.late is not None:
            return folded.late.topic
        return None


@dataclass(frozen=True, eq=False)
class Printed(Sink):
    """To standard output; `topic` is what each line begins with."""


def ancestors(node: Node) -> list[Node]:
    """The node and all above it, parents first, each once."""
    found: list[Node] = []

    def visit(each: Node) -> None:
        if any(each is one for one in found):
            return
        for parent in each.parents:
            visit(parent)
        found.append(each)

    visit(node)
    return found
