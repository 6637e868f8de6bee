"""Joins of streams and tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ottla.streams.durations import Duration, duration_ms, format_duration
from ottla.streams.errors import listed, topology_error
from ottla.streams.operators.checks import refuse_second_state, refuse_untyped, shape_of
from ottla.streams.operators.topics import Source, make_sink, source_topic_of
from ottla.streams.plan.expressions import ColumnReference
from ottla.streams.plan.node import Function, Node, UnaryNode, engine_of
from ottla.streams.plan.shapes import (
    Column,
    DataShape,
    plain_shape,
    record_shape,
    type_family,
    type_of,
)
from ottla.streams.plan.tracing import InPython, Traced, format_function, trace, trace_pair
from ottla.streams.serdes import Serde, default_serde
from ottla.streams.topology import Topology

JoinType = Literal["inner", "left", "outer"]
ValueFunction = Callable[..., Any]
"""Function of the left and the right value that returns the new value."""


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Join of two nodes; `function` computes the value from the values of both."""

    left: Node
    right: Node
    how: JoinType
    function: Function

    @property
    def parents(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def functions_used(self) -> tuple[Function, ...]:
        return (self.function,)

    @property
    def engine(self) -> str:
        return engine_of(self.function)


# ------------------------------------------------------------------------ a stream with a stream


@dataclass(frozen=True, eq=False)
class StreamJoin(Join):
    """Join of two streams by key and time."""

    within_ms: int
    grace_ms: int

    @property
    def state_word(self) -> str:
        return "joined"

    @property
    def watermark_delay_ms(self) -> int:
        return self.within_ms + self.grace_ms

    @property
    def needs_append_mode(self) -> bool:
        # A result without a partner is emitted when the watermark passes it.
        return self.how != "inner"

    @property
    def engine(self) -> str:
        return "state"

    def describe(self) -> tuple[str, str]:
        within, grace = format_duration(self.within_ms), format_duration(self.grace_ms)
        what = f"within {within}, grace {grace}: {format_function(self.function)}"
        return f"{self.how} join", what


def join_streams(
    left: Node,
    right: Node,
    function: ValueFunction | None,
    how: str,
    within: Duration | None,
    grace: Duration,
    schema: str | None,
) -> StreamJoin:
    join_type = _join_type(how, "inner", "left", "outer")
    if within is None:
        raise topology_error(
            "join", 'a join of two streams needs a window, such as within="5 minutes"'
        )
    refuse_second_state("join", left, right)
    _refuse_other_key(left, right)
    made, shape = _joined_value(left.value, right.value, function, schema)
    within_ms = duration_ms(within, name="within")
    grace_ms = duration_ms(grace, name="grace")
    return StreamJoin(left.key, shape, left, right, join_type, made, within_ms, grace_ms)


# ------------------------------------------------------------------------- a stream with a table


@dataclass(frozen=True, eq=False)
class TableJoin(Join):
    """Join of each record of a stream with the row of a table for its key, in the micro-batch."""

    right: Source

    def describe(self) -> tuple[str, str]:
        what = f"with the table as it is: {format_function(self.function)}"
        return f"{self.how} join", what


@dataclass(frozen=True, eq=False)
class Lookup(Join):
    """Join of each record of a stream with the row of a global table for `on`."""

    right: Source
    on: Function
    on_shape: DataShape

    @property
    def functions_used(self) -> tuple[Function, ...]:
        return (self.function, self.on)

    @property
    def engine(self) -> str:
        on = f"; on: {engine_of(self.on)}" if isinstance(self.on, InPython) else ""
        return f"{engine_of(self.function)}{on}"

    def describe(self) -> tuple[str, str]:
        by = f"on {format_function(self.on)}, with the table as it is"
        return f"{self.how} join", f"{by}: {format_function(self.function)}"


def join_table(
    left: Node, table: Node, function: ValueFunction | None, how: str, schema: str | None
) -> TableJoin:
    join_type, source = _join_type(how, "inner", "left"), _table_topic(table)
    made, shape = _joined_value(left.value, source.value, function, schema)
    _refuse_other_key(left, source)
    return TableJoin(left.key, shape, left, source, join_type, made)


def join_global_table(
    left: Node,
    table: Source,
    function: ValueFunction | None,
    how: str,
    on: Callable[..., Any] | None,
    schema: str | None,
) -> Lookup:
    """Return a look-up in a global table by the result of `on`, or by the stream's key."""
    join_type = _join_type(how, "inner", "left")
    made, shape = _joined_value(left.value, table.value, function, schema)
    if on is None:
        by: Function = Traced(_key_reference(left.key))
        on_shape = left.key
    else:
        by = trace("join on", on, left.key, left.value)
        on_shape = table.key if not isinstance(by, Traced) else shape_of("join on", by, None)
    if not _comparable(on_shape, table.key):
        raise topology_error(
            "join", f"keys differ: {on_shape} and {table.key}; use on= to compute another key"
        )
    return Lookup(left.key, shape, left, table, join_type, made, by, on_shape)


def _table_topic(table: Node) -> Source:
    if not isinstance(table, Source):
        raise topology_error(
            "join",
            "the table must be a topic; write it with to(topic) and join app.table(topic)",
        )
    return table


def _key_reference(key: DataShape) -> Any:
    if key.is_record:
        return {each.name: ColumnReference(each.type, "key", each.name) for each in key.columns}
    return ColumnReference(plain_shape(key.columns[0].type).columns[0].type, "key", None)


# -------------------------------------------------------------------------- a table with a table


@dataclass(frozen=True, eq=False)
class TablesJoin(Join):
    """Join of two tables by key. A change of either changes the result."""

    @property
    def state_word(self) -> str:
        return "joined"

    @property
    def engine(self) -> str:
        return f"Python state; {engine_of(self.function)}"

    def describe(self) -> tuple[str, str]:
        return f"{self.how} join", f"of tables by key: {format_function(self.function)}"


def join_tables(
    left: Node, right: Node, function: ValueFunction | None, how: str, schema: str | None
) -> TablesJoin:
    join_type = _join_type(how, "inner", "left", "outer")
    _check_tables(left, right)
    made, shape = _joined_value(left.value, right.value, function, schema)
    _refuse_other_key(left, right)
    return TablesJoin(left.key, shape, left, right, join_type, made)


@dataclass(frozen=True, eq=False)
class Subscribing(UnaryNode):
    """Rows of a table with their old and new foreign key: the first step of a foreign-key join.

    The value is (before, now, value).
    """

    foreign_key: DataShape
    function: Function

    @property
    def functions_used(self) -> tuple[Function, ...]:
        return (self.function,)

    @property
    def state_word(self) -> str:
        return "joined"

    @property
    def engine(self) -> str:
        return f"Python state; {engine_of(self.function)}"

    def describe(self) -> tuple[str, str]:
        return "subscribe", f"to the foreign key {format_function(self.function)}"


@dataclass(frozen=True, eq=False)
class ForeignJoin(Join):
    """Second step of a foreign-key join; `left` is the topic that the first step writes."""

    left: Source
    left_value: DataShape

    @property
    def state_word(self) -> str:
        return "joined"

    @property
    def engine(self) -> str:
        return f"Python state; {engine_of(self.function)}"

    def describe(self) -> tuple[str, str]:
        return f"{self.how} join", f"of tables by foreign key: {format_function(self.function)}"


def join_foreign_table(
    topology: Topology,
    left: Node,
    right: Node,
    function: ValueFunction | None,
    how: str,
    on: Callable[..., Any],
    schema: str | None,
) -> ForeignJoin:
    """Return a foreign-key join: two queries with an internal topic between them."""
    join_type = _join_type(how, "inner", "left")
    _check_tables(left, right)
    joined, shape = _joined_value(left.value, right.value, function, schema)
    made = trace("join on", on, left.key, left.value)
    foreign = right.key if not isinstance(made, Traced) else shape_of("join on", made, None)
    refuse_untyped("join on", foreign)
    if not _comparable(foreign, right.key):
        raise topology_error(
            "join on", f"the foreign key is {foreign}, the key of the other table {right.key}"
        )
    columns = (
        Column("before", type_of(foreign)),
        Column("now", type_of(foreign)),
        Column("value", type_of(left.value)),
    )
    subscribing = Subscribing(left.key, record_shape(*columns), left, foreign, made)
    topics = [source_topic_of(each) for each in (left, right)]
    topic = topology.unused_topic_name(f"{topology.name}-{'-'.join(topics)}-subscriptions")
    key, value = default_serde(left.key), Serde("json", subscribing.value)
    topology.add_sink(make_sink(subscribing, topic, key, value, is_internal=True))
    source = Source(left.key, value.shape, topic, key, value)
    return ForeignJoin(left.key, shape, source, right, join_type, joined, left.value)


def _check_tables(left: Node, right: Node) -> None:
    refuse_second_state("join", left, right)
    refuse_untyped("join", left.key, left.value, right.key, right.value)


# ------------------------------------------------------------------------------------ the checks


def _join_type(how: str, *valid: JoinType) -> JoinType:
    if how not in valid:
        raise topology_error("join", f"how={how!r} is invalid; valid values: {listed(valid)}")
    return how


def _refuse_other_key(left: Node, right: Node) -> None:
    """Refuse a join of keys that cannot be compared.

    Spark brings equal keys together whatever their partitions, so the types alone matter.
    """
    if not _comparable(left.key, right.key):
        raise topology_error(
            "join", f"keys differ: {left.key} and {right.key}; use select_key on one of them"
        )


def _comparable(left: DataShape, right: DataShape) -> bool:
    kinds = [[type_family(column.type) for column in each.columns] for each in (left, right)]
    return left.is_record == right.is_record and kinds[0] == kinds[1]


def _joined_value(
    left: DataShape, right: DataShape, function: ValueFunction | None, schema: str | None
) -> tuple[Function, DataShape]:
    """Return the function that computes the value, and the shape of its result."""
    if function is not None:
        made = trace_pair("join", function, left, right)
        return made, shape_of("join", made, schema)
    if not (left.is_record and right.is_record):
        raise topology_error(
            "join", "plain values have no columns to combine; pass a function (left, right)"
        )
    twice = [name for name in left.names if name in right.names]
    if twice:
        raise topology_error(
            "join", f"both sides have {listed(twice)}; pass a function (left, right)"
        )
    outcome = {
        column.name: ColumnReference(column.type, side, column.name)
        for side, shape in (("left", left), ("right", right))
        for column in shape.columns
    }
    columns = (Column(name, each.type) for name, each in outcome.items())
    return Traced(outcome), record_shape(*columns)
