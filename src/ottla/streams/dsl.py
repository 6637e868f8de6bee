"""Streams and tables as users handle them. Each call makes a new plan and checks it.

A `Stream` is events. A `Table` is the latest value of each key: a topic read as a changelog, or the
outcome of an aggregation. What each operator needs is checked where it is called; an error names
the operator, the line and the choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.aggregates import Aggregate, count
from ottla.streams.durations import Duration, duration_ms
from ottla.streams.errors import TopologyError, listed, refused
from ottla.streams.joins import how_of, joined_value, refuse_uncopartitioned
from ottla.streams.plan.nodes import (
    Aggregated,
    Deduplicated,
    Filter,
    FlatMapValues,
    Function,
    MapValues,
    Merge,
    Node,
    SelectKey,
    Sink,
    Source,
    StreamJoin,
    Suppressed,
    TableJoin,
    ancestors,
)
from ottla.streams.plan.shapes import Column, Shape, family, parse_record, parse_type, plain, record
from ottla.streams.plan.tracing import InPython, Traced, trace
from ottla.streams.serdes import Serde, natural
from ottla.streams.windows import Window

if TYPE_CHECKING:
    from ottla.streams.app import App

Over = Callable[..., Any]
"""A function of (value), (key, value) or (key, value, timestamp)."""

WINDOW_COLUMNS = (Column("window_start", "timestamp"), Column("window_end", "timestamp"))


class Stream:
    """Records of a topic, or what operators made of them."""

    def __init__(self, app: App, node: Node) -> None:
        self._app = app
        self._node = node

    @property
    def columns(self) -> tuple[str, ...]:
        return self._node.value.names

    def __repr__(self) -> str:
        return f"Stream(key={self._node.key}, value={self._node.value})"

    # ----------------------------------------------------------------------------- one to one

    def filter(self, predicate: Over) -> Stream:
        """Keep records for which it is true; null is not."""
        return self._filtered("filter", predicate, negated=False)

    def filter_not(self, predicate: Over) -> Stream:
        """Keep records for which it is not true."""
        return self._filtered("filter_not", predicate, negated=True)

    def _filtered(self, operator: str, predicate: Over, *, negated: bool) -> Stream:
        node = self._node
        function = trace(operator, predicate, node.key, node.value)
        if isinstance(function, Traced) and (
            isinstance(function.outcome, dict | tuple) or function.outcome.type != "boolean"
        ):
            raise refused(operator, "the function must say true or false")
        return self._with(Filter(node.key, node.value, node, function, negated))

    def branch(self, **predicates: Over) -> dict[str, Stream]:
        """Each record to the first whose predicate is true; to `otherwise` if none is."""
        if not predicates or "otherwise" in predicates:
            raise refused("branch", "name the branches: branch(big=…, small=…); otherwise is ours")
        rest, branches = self, {}
        for name, predicate in predicates.items():
            branches[name] = rest._filtered("branch", predicate, negated=False)
            rest = rest._filtered("branch", predicate, negated=True)
        return {**branches, "otherwise": rest}

    def map_values(self, function: Over, schema: str | None = None) -> Stream:
        """A new value for each record: a dict makes a record, anything else a plain value."""
        node = self._node
        made = trace("map_values", function, node.key, node.value)
        shape = shape_of("map_values", made, schema)
        return self._with(MapValues(node.key, shape, node, made))

    def flat_map_values(self, function: Over, schema: str | None = None) -> Stream:
        """As many records for each as the list has that it returns."""
        node = self._node
        made = trace("flat_map_values", function, node.key, node.value)
        if isinstance(made, InPython):
            shape = shape_of("flat_map_values", made, schema)
        else:
            of_type = None if isinstance(made.outcome, dict | tuple) else made.outcome.type
            if of_type is None or not of_type.startswith("array<"):
                raise refused("flat_map_values", "the function must return a list")
            shape = plain(of_type.removeprefix("array<").removesuffix(">"))
        return self._with(FlatMapValues(node.key, shape, node, made))

    def select_key(self, function: Over, schema: str | None = None) -> Stream:
        """A new key for each record."""
        node = self._node
        made = trace("select_key", function, node.key, node.value)
        shape = shape_of("select_key", made, schema)
        return self._with(SelectKey(shape, node.value, node, made))

    def merge(self, other: Stream) -> Stream:
        """Records of both, in no particular order between them."""
        mine, theirs = self._node, other._node
        for what, left, right in (
            ("keys", mine.key, theirs.key),
            ("values", mine.value, theirs.value),
        ):
            if left != right:
                raise refused("merge", f"{what} differ: {left} and {right}")
        return self._with(Merge(mine.key, mine.value, mine, theirs))

    # ---------------------------------------------------------------------------- with state

    def group_by(self, function: Over, schema: str | None = None) -> Grouped:
        """By a new key. Records whose key is null are left out, as in Kafka Streams."""
        return Grouped(self._app, self.select_key(function, schema)._node)

    def group_by_key(self) -> Grouped:
        return Grouped(self._app, self._node)

    def deduplicate(self, function: Over, *, within: Duration) -> Stream:
        """The first record of each outcome of the function (an order's id, say); others that come
        within that time of it are dropped. Those later than it are dropped, too."""
        node = self._node
        _refuse_second_state("deduplicate", node)
        made = trace("deduplicate", function, node.key, node.value)
        if isinstance(made, InPython):
            raise refused(
                "deduplicate",
                f"the function would run in Python ({made.reason}): use select_key or map_values "
                "first, and a column of theirs here",
            )
        shape_of("deduplicate", made, None)
        within_ms = duration_ms(within, name="within", least_ms=1)
        return self._with(Deduplicated(node.key, node.value, node, made, within_ms))

    def join(
        self,
        other: Stream | Table,
        function: Over | None = None,
        *,
        how: str = "inner",
        within: Duration | None = None,
        grace: Duration = "0 seconds",
        schema: str | None = None,
    ) -> Stream:
        """Records with the same key. With a stream: whose times are `within` each other; with a
        table: with what it holds. `function(left, right)` makes the value; without one it has the
        columns of both."""
        if isinstance(other, Table):
            return self._join_table(other, function, how, within, schema)
        how = how_of("join", how, ("inner", "left", "outer"))
        if within is None:
            raise refused("join", 'two streams join in a window: within="5 minutes"')
        _refuse_second_state("join", self._node)
        _refuse_second_state("join", other._node)
        refuse_uncopartitioned("join", self._node, other._node)
        mine, theirs = self._node, other._node
        made, shape = joined_value(mine.value, theirs.value, function)
        shape = shape_of("join", made, schema) if shape is None else shape
        within_ms = duration_ms(within, name="within")
        grace_ms = duration_ms(grace, name="grace")
        return self._with(StreamJoin(mine.key, shape, mine, theirs, how, within_ms, grace_ms, made))

    def _join_table(
        self,
        table: Table,
        function: Over | None,
        how: str,
        within: Duration | None,
        schema: str | None,
    ) -> Stream:
        how = how_of("join", how, ("inner", "left"))
        if within is not None:
            raise refused("join", "a table has no window: leave out within")
        source = table._node
        if not isinstance(source, Source):
            raise refused(
                "join", "the table must be a topic: write it with to(…), and read it with app.table"
            )
        node = self._node
        refuse_uncopartitioned("join", node, source)
        made, shape = joined_value(node.value, source.value, function)
        shape = shape_of("join", made, schema) if shape is None else shape
        return self._with(TableJoin(node.key, shape, node, source, how, made))

    # --------------------------------------------------------------------------------- ends

    def to(self, topic: str, *, key: Serde | None = None, value: Serde | None = None) -> None:
        """Write to a topic: text and bytes as they are, everything else as JSON. A windowed key has
        its window in it, in Kafka Streams' format, unless `key` says how to write it."""
        self._app._add(_sink(self._node, topic, key, value))

    def through(self, topic: str) -> Stream:
        """Write to a topic and go on from there: what follows is a query of its own."""
        node = self._node
        unknown = [str(each) for each in (*node.key.columns, *node.value.columns) if not each.type]
        if unknown:
            raise refused("through", f"the types of {listed(unknown)} are not known: use schema=")
        key, value = natural(node.key), natural(node.value)
        self.to(topic, key=key, value=value)
        return self._app.stream(topic, key=key, value=value)

    def _with(self, node: Node) -> Stream:
        return Stream(self._app, node)


class Grouped:
    """Records by key, to be aggregated."""

    def __init__(self, app: App, node: Node, window: Window | None = None) -> None:
        self._app = app
        self._node = node
        self._window = window

    def windowed(self, window: Window) -> Grouped:
        if self._window is not None:
            raise refused("windowed", f"there is a window already: {self._window}")
        if not isinstance(window, Window):
            raise refused("windowed", "give st.tumbling, st.hopping or st.session")
        return Grouped(self._app, self._node, window)

    def count(self) -> Table:
        return self.aggregate(count=count())

    def aggregate(self, **aggregates: Aggregate) -> Table:
        """A column for each: aggregate(total=st.sum("amount"), n=st.count()). Records without key
        or value are left out."""
        node = self._node
        _refuse_second_state("aggregate", node)
        if not aggregates:
            raise refused("aggregate", "say what: aggregate(n=st.count())")
        columns = [] if self._window is None else list(WINDOW_COLUMNS)
        for name, each in aggregates.items():
            if name in [column.name for column in columns]:
                raise refused("aggregate", f"{name} is the window's own column")
            columns.append(Column(name, _aggregate_type(name, each, node.value)))
        made = Aggregated(node.key, record(*columns), node, self._window, tuple(aggregates.items()))
        return Table(self._app, made)


class Table:
    """The latest value of each key."""

    def __init__(self, app: App, node: Node) -> None:
        self._app = app
        self._node = node

    @property
    def columns(self) -> tuple[str, ...]:
        return self._node.value.names

    def __repr__(self) -> str:
        return f"Table(key={self._node.key}, value={self._node.value})"

    def suppress(self) -> Table:
        """Nothing of a window until it closes, then its outcome, once."""
        if not self._node.is_windowed or isinstance(self._node, Suppressed):
            raise refused("suppress", "only windows close: windowed(…) must come before, once")
        return Table(self._app, Suppressed(self._node.key, self._node.value, self._node))

    def to_stream(self) -> Stream:
        """The table's changes, as events."""
        _refuse_open_session("to_stream", self._node)
        return Stream(self._app, self._node)

    def to(self, topic: str, *, key: Serde | None = None, value: Serde | None = None) -> None:
        """Write the table's changes to a topic: see `Stream.to`."""
        self._app._add(_sink(self._node, topic, key, value))


def _sink(node: Node, topic: str, key: Serde | None, value: Serde | None) -> Sink:
    _refuse_open_session("to", node)
    if not topic or type(topic) is not str:
        raise refused("to", f"{topic!r} is no topic")
    for what, serde, shape in (("key", key, node.key), ("value", value, node.value)):
        if serde is not None and not _fits(serde, shape):
            raise refused("to", f"{what} {shape} cannot be written as {serde} {serde.shape}")
    with_window = node.is_windowed and key is None
    return Sink(
        node.key,
        node.value,
        node,
        topic,
        key or natural(node.key),
        value or natural(node.value),
        with_window,
    )


def _fits(serde: Serde, shape: Shape) -> bool:
    if serde.name == "json":
        return set(serde.shape.names) <= set(shape.names)
    if shape.is_record:
        return False
    of_type = shape.columns[0].type
    return of_type is None or family(of_type) == family(serde.shape.columns[0].type)


def shape_of(operator: str, function: Function, schema: str | None) -> Shape:
    """Of what a function returns."""
    if isinstance(function, InPython):
        if schema is None:
            raise refused(
                operator,
                f"the function runs in Python ({function.reason}), so say what it returns: "
                'schema="double" or schema="item string, total double"',
            )
        return parse_schema(schema)
    outcome = function.outcome
    if isinstance(outcome, tuple):
        raise refused(operator, "the function must return one value or a dict")
    if isinstance(outcome, dict):
        if not outcome:
            raise refused(operator, "the function returns an empty dict")
        return record(*(Column(name, each.type) for name, each in outcome.items()))
    if outcome.type == "void":
        raise refused(operator, "the function returns None")
    return plain(outcome.type)


def parse_schema(schema: str) -> Shape:
    """`"double"` or `"item string, total double"`."""
    try:
        return plain(parse_type(schema))
    except TopologyError:
        return parse_record(schema)


def _aggregate_type(name: str, aggregate: Aggregate, value: Shape) -> str | None:
    if not isinstance(aggregate, Aggregate):
        raise refused("aggregate", f'{name} must be an aggregate such as st.sum("amount")')
    if aggregate.column is None:
        if aggregate.function == "count":
            return "bigint"
        if value.is_record:
            raise refused(
                "aggregate", f"{name}={aggregate}: of which column? columns: {listed(value.names)}"
            )
        column = value.columns[0]
    else:
        found = value.find(aggregate.column) if value.is_record else None
        if found is None:
            names = listed(value.names) if value.is_record else "none, values are plain"
            raise refused(
                "aggregate",
                f"{name}={aggregate}: unknown column {aggregate.column!r}; columns: {names}",
            )
        column = found
    if not aggregate.takes(column.type):
        raise refused("aggregate", f"{name}={aggregate}: {column} is no number")
    return aggregate.type_of(column.type)


def _refuse_second_state(operator: str, node: Node) -> None:
    for each in ancestors(node):
        if isinstance(each, Aggregated | StreamJoin | Deduplicated):
            what = {Aggregated: "aggregated", StreamJoin: "joined"}.get(type(each), "deduplicated")
            raise refused(
                operator,
                f"its input is {what} already; put through(topic) between the two, which makes "
                "them queries of their own",
            )


def _refuse_open_session(operator: str, node: Node) -> None:
    above = ancestors(node)
    if any(isinstance(each, Suppressed) for each in above):
        return
    windows = [each.window for each in above if isinstance(each, Aggregated)]
    if any(window is not None and window.is_session for window in windows):
        raise refused(operator, "sessions are given out when they close: call suppress() before")
