"""Streams as users handle them. Each call makes a new plan and checks it.

A `Stream` is events; see `table` for the latest values of keys, `grouped` for aggregations. What
each operator needs is checked where it is called; an error names the operator, the line and the
choices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.checks import (
    pair_shapes,
    parse_schema,
    printed,
    refuse_second_state,
    refuse_two_states,
    refuse_untyped,
    shape_of,
    sink,
)
from ottla.streams.durations import Duration, duration_ms
from ottla.streams.errors import refused
from ottla.streams.grouped import Grouped
from ottla.streams.joins import how_of, joined_value, lookup, refuse_uncopartitioned
from ottla.streams.plan.nodes import (
    Deduplicated,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    Merge,
    Node,
    Peek,
    Processed,
    Repartitioned,
    SelectKey,
    Source,
    StreamJoin,
    TableJoin,
    Transformed,
)
from ottla.streams.plan.shapes import plain
from ottla.streams.plan.tracing import InPython, Traced, fingerprint_of_class, in_python, trace
from ottla.streams.serdes import Serde, natural
from ottla.streams.state.processors import Processor, has_wall_clock
from ottla.streams.table import GlobalTable, Table

if TYPE_CHECKING:
    from ottla.streams.app import App

Over = Callable[..., Any]
"""A function of (value), (key, value) or (key, value, timestamp)."""

CLOCK = "1 second"
"""How often processors look at the clock on the wall unless they are told."""
LEAST_CLOCK_MS = 100
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,100}")


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

    def map(
        self, function: Over, schema: str | None = None, *, key_schema: str | None = None
    ) -> Stream:
        """A new key and a new value for each record: the function returns (key, value)."""
        node = self._node
        made = trace("map", function, node.key, node.value)
        key, value = pair_shapes("map", made, schema, key_schema)
        return self._with(Map(key, value, node, made))

    def flat_map(self, function: Over, *, schema: str, key_schema: str) -> Stream:
        """As many records for each as the list has that it returns, of (key, value)."""
        node = self._node
        made = in_python("flat_map", function, "a list of pairs")
        key, value = pair_shapes("flat_map", made, schema, key_schema)
        return self._with(FlatMap(key, value, node, made))

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
        merged = Merge(mine.key, mine.value, mine, theirs)
        refuse_two_states("merge", merged)
        return self._with(merged)

    def peek(self, function: Over) -> Stream:
        """Call it for each record, for what it does: to count, to log. It runs where the records
        are, and again for records of a batch that is run again."""
        node = self._node
        made = in_python("peek", function, "called for what it does")
        return self._with(Peek(node.key, node.value, node, made))

    def repartition(self, partitions: int) -> Stream:
        """Spread by key over so many tasks: what follows runs on as many cores. Order within a key
        stays as it is. To have the records in a topic, use through."""
        if type(partitions) is not int or partitions < 1:
            raise refused("repartition", f"partitions={partitions!r}: a number from 1 up")
        node = self._node
        return self._with(Repartitioned(node.key, node.value, node, partitions))

    def transform(
        self, function: Over, schema: str | None = None, *, key_schema: str | None = None
    ) -> Stream:
        """DataFrame code in the middle: the function gets a DataFrame with the columns key, value
        and timestamp, and returns one. `schema` and `key_schema` if it changes their types."""
        node = self._node
        made = in_python("transform", function, "a function over DataFrames", arities=(1,))
        key = node.key if key_schema is None else parse_schema(key_schema)
        value = node.value if schema is None else parse_schema(schema)
        return self._with(Transformed(key, value, node, made))

    @property
    def df(self) -> Any:
        """This stream as Spark's streaming DataFrame, with the columns key, value and timestamp, in
        the active session: for queries of your own."""
        from ottla.streams.mixing import frame_of

        return frame_of(self._app, self._node)

    # ---------------------------------------------------------------------------- with state

    def group_by(self, function: Over, schema: str | None = None) -> Grouped:
        """Group records by a new key. Records with a null key are dropped, as in Kafka Streams."""
        return Grouped(self._app, self.select_key(function, schema)._node)

    def group_by_key(self) -> Grouped:
        return Grouped(self._app, self._node)

    def deduplicate(self, function: Over, *, within: Duration) -> Stream:
        """The first record of each outcome of the function (an order's id, say); others that come
        within that time of it are dropped. Those later than it are dropped, too."""
        node = self._node
        refuse_second_state("deduplicate", node)
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

    def process(
        self,
        processor: Any,
        *,
        schema: str,
        key_schema: str | None = None,
        clock: Duration | None = None,
    ) -> Stream:
        """Your own: a subclass of `st.Processor`, or a function that makes one. `schema` is that of
        the values it forwards; `key_schema` of their keys, if they are not the stream's. `clock` is
        how often one with `on_wall_clock` is to look at the clock ("1 second")."""
        node = self._node
        refuse_second_state("process", node)
        made: object = processor() if callable(processor) else processor
        if not isinstance(made, Processor):
            raise refused("process", f"{processor!r} makes no st.Processor")
        kind = type(made)
        if kind.process is Processor.process:
            raise refused("process", f"{kind.__name__} has no process(self, record)")
        clock_ms = None
        if has_wall_clock(kind):
            clock_ms = duration_ms(clock or CLOCK, name="clock", least_ms=LEAST_CLOCK_MS)
        elif clock is not None:
            raise refused("process", f"clock={clock!r}: {kind.__name__} has no on_wall_clock")
        key = node.key if key_schema is None else parse_schema(key_schema)
        refuse_untyped("process", node.key, node.value, key)
        value = parse_schema(schema)
        fingerprint = fingerprint_of_class(kind)
        return self._with(
            Processed(key, value, node, processor, kind.__name__, fingerprint, clock_ms)
        )

    def join(
        self,
        other: Stream | Table | GlobalTable,
        function: Over | None = None,
        *,
        how: str = "inner",
        within: Duration | None = None,
        grace: Duration = "0 seconds",
        on: Over | None = None,
        schema: str | None = None,
    ) -> Stream:
        """Records with the same key. With a stream: whose times are `within` each other; with a
        table: with what it holds; with a global table: `on` any key that is made of the record.
        `function(left, right)` makes the value; without one it has the columns of both."""
        if isinstance(other, Table | GlobalTable):
            return self._join_table(other, function, how, within, on, schema)
        if not isinstance(other, Stream):
            raise refused("join", f"{other!r} is no stream, table or global table")
        if on is not None:
            raise refused("join", "on= is for global tables: use select_key on both streams")
        how = how_of("join", how, ("inner", "left", "outer"))
        if within is None:
            raise refused("join", 'two streams join in a window: within="5 minutes"')
        refuse_second_state("join", self._node)
        refuse_second_state("join", other._node)
        refuse_uncopartitioned("join", self._node, other._node)
        mine, theirs = self._node, other._node
        made, shape = joined_value(mine.value, theirs.value, function)
        shape = shape_of("join", made, schema) if shape is None else shape
        within_ms = duration_ms(within, name="within")
        grace_ms = duration_ms(grace, name="grace")
        return self._with(StreamJoin(mine.key, shape, mine, theirs, how, within_ms, grace_ms, made))

    def _join_table(
        self,
        table: Table | GlobalTable,
        function: Over | None,
        how: str,
        within: Duration | None,
        on: Over | None,
        schema: str | None,
    ) -> Stream:
        how = how_of("join", how, ("inner", "left"))
        if within is not None:
            raise refused("join", "a table has no window: leave out within")
        node, source = self._node, table._node
        if not isinstance(source, Source):
            raise refused("join", "the table must be a topic: go through(topic), and join that")
        made, shape = joined_value(node.value, source.value, function)
        shape = shape_of("join", made, schema) if shape is None else shape
        if isinstance(table, GlobalTable):
            return self._with(lookup(node, source, on, how, made, shape))
        if on is not None:
            raise refused("join", "on= is for global tables: app.global_table, or select_key")
        refuse_uncopartitioned("join", node, source)
        return self._with(TableJoin(node.key, shape, node, source, how, made))

    # --------------------------------------------------------------------------------- ends

    def to(self, topic: str, *, key: Serde | None = None, value: Serde | None = None) -> None:
        """Write to a topic: text and bytes as they are, everything else as JSON. A windowed key has
        its window in it, in Kafka Streams' format, unless `key` says how to write it."""
        self._app._add(sink(self._node, topic, key, value))

    def print(self, label: str) -> None:
        """To standard output of whoever runs the application: `[label]: key, value`."""
        if not _LABEL.fullmatch(label):
            raise refused("print", f"label {label!r}: letters, digits, dots, dashes, please")
        self._app._add(printed(self._node, label))

    def through(self, topic: str) -> Stream:
        """Write to a topic and go on from there: what follows is a query of its own."""
        node = self._node
        refuse_untyped("through", node.key, node.value)
        key, value = natural(node.key), natural(node.value)
        self.to(topic, key=key, value=value)
        return self._app.stream(topic, key=key, value=value)

    def _with(self, node: Node) -> Stream:
        return Stream(self._app, self._app._as_configured(node))
