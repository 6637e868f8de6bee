"""Tables: the latest value of each key.

A table is a topic that is read as a changelog, the result of an aggregation, or a join of tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.streams.checks import (
    make_sink,
    make_source,
    refuse_after_late_topic,
    refuse_second_state,
    refuse_untyped,
    shape_of,
)
from ottla.streams.durations import Duration, duration_ms
from ottla.streams.errors import topology_error
from ottla.streams.joins import (
    check_how,
    foreign_join,
    joined_value,
    refuse_uncopartitioned,
)
from ottla.streams.plan.nodes import (
    Aggregated,
    MapValues,
    Node,
    PythonAggregated,
    Source,
    Suppressed,
    TableFilter,
    TablesJoin,
)
from ottla.streams.plan.tracing import Traced, trace
from ottla.streams.serdes import Serde, default_serde
from ottla.streams.suppression import with_time_limit
from ottla.streams.topology import Topology

if TYPE_CHECKING:
    from ottla.streams.dsl import Stream
    from ottla.streams.grouped_table import GroupedTable

RecordFunction = Callable[..., Any]


class Table:
    """A table: the latest value of each key."""

    def __init__(self, topology: Topology, node: Node) -> None:
        self._topology = topology
        self._node = node
        self.when_suppressed: Aggregated | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the value."""
        return self._node.value.names

    def __repr__(self) -> str:
        return f"Table(key={self._node.key}, value={self._node.value})"

    # ------------------------------------------------------------------------------ one to one

    def filter(self, predicate: RecordFunction) -> Table:
        """Keep the keys for which a predicate is true. Other keys are deleted with a tombstone.

        Args:
            predicate: Function over records that returns a boolean.
        """
        return self._filtered("filter", predicate, negated=False)

    def filter_not(self, predicate: RecordFunction) -> Table:
        """Keep the keys for which a predicate is not true.

        Args:
            predicate: Function over records that returns a boolean.
        """
        return self._filtered("filter_not", predicate, negated=True)

    def _filtered(self, operator: str, predicate: RecordFunction, *, negated: bool) -> Table:
        node = self._node
        refuse_after_late_topic(operator, node)
        function = trace(operator, predicate, node.key, node.value)
        if isinstance(function, Traced) and getattr(function.outcome, "type", "") != "boolean":
            raise topology_error(operator, "the function must return a boolean")
        made = TableFilter(node.key, node.value, node, function, negated)
        return Table(self._topology, self._topology.with_failure_handling(made))

    def map_values(self, function: RecordFunction, schema: str | None = None) -> Table:
        """Replace the value of each key. Deleted keys stay deleted.

        Args:
            function: Function over records that returns the value.
            schema: Schema of the result. Needed for functions that run in Python.
        """
        node = self._node
        refuse_after_late_topic("map_values", node)
        made = trace("map_values", function, node.key, node.value)
        shape = shape_of("map_values", made, schema)
        mapped = MapValues(node.key, shape, node, made, keeps_null=True)
        return Table(self._topology, self._topology.with_failure_handling(mapped))

    # ------------------------------------------------------------------------------ with state

    def suppress(self, *, time_limit: Duration | None = None) -> Table:
        """Emit only the final result of each window, or limit the rate of changes.

        Args:
            time_limit: Event time in which each key changes at most once: a change waits for that
                long, and later ones replace it. None waits until the window closes.

        Raises:
            TopologyError: The table has no window and no `time_limit` is given.
        """
        if time_limit is not None:
            if isinstance(self._node, Suppressed):
                raise topology_error("suppress", "the table is already suppressed")
            limit_ms = duration_ms(time_limit, name="time_limit", min_ms=1)
            return Table(self._topology, with_time_limit(self._node, limit_ms))
        node = self.when_suppressed or self._node
        if not isinstance(node, Aggregated | PythonAggregated) or node.window is None:
            raise topology_error(
                "suppress", "only windows close; use windowed(…) before it, and suppress only once"
            )
        return Table(self._topology, Suppressed(node.key, node.value, node))

    def group_by(self, function: RecordFunction, schema: str | None = None) -> GroupedTable:
        """Group rows by another key, through a repartition topic between two queries.

        Args:
            function: Function over records that returns the key.
            schema: Schema of the key. Needed for functions that run in Python.
        """
        from ottla.streams.grouped_table import GroupedTable

        return GroupedTable(self._topology, self._node, function, schema)

    def join(
        self,
        other: Table,
        function: RecordFunction | None = None,
        *,
        how: str = "inner",
        on: RecordFunction | None = None,
        schema: str | None = None,
    ) -> Table:
        """Join two tables; the result changes with both.

        Args:
            other: The other table.
            function: Function of the left and the right value that returns the new value. None
                combines the columns of both.
            how: `"inner"`, `"left"` or `"outer"`; with `on`, `"inner"` or `"left"`.
            on: Function of this table's records that returns the foreign key: a key of the other
                table. None joins by key.
            schema: Schema of the new value. Needed for functions that run in Python.

        Raises:
            TopologyError: The two cannot be joined.
        """
        if not isinstance(other, Table):
            raise topology_error(
                "join", "a table joins only tables; to join a stream, use stream.join(table)"
            )
        mine, theirs = self._node, other._node
        how = check_how(
            "join", how, ("inner", "left", "outer") if on is None else ("inner", "left")
        )
        refuse_second_state("join", mine, theirs)
        refuse_untyped("join", mine.key, mine.value, theirs.key, theirs.value)
        made, shape = joined_value(mine.value, theirs.value, function)
        shape = shape_of("join", made, schema) if shape is None else shape
        if on is not None:
            return Table(
                self._topology, foreign_join(self._topology, mine, theirs, on, how, made, shape)
            )
        refuse_uncopartitioned("join", mine, theirs)
        return Table(self._topology, TablesJoin(mine.key, shape, mine, theirs, how, made))

    # ------------------------------------------------------------------------------------ ends

    def to_stream(self) -> Stream:
        """Return the changes of the table as a stream."""
        from ottla.streams.dsl import Stream

        refuse_after_late_topic("to_stream", self._node)
        return Stream(self._topology, self._node)

    def to(self, topic: str, *, key: Serde | None = None, value: Serde | None = None) -> None:
        """Write the changes of the table to a topic.

        Text and bytes are written as they are, everything else as JSON. A windowed key includes
        its window in the format of Kafka Streams, unless `key` is given.

        Args:
            topic: Topic to write to.
            key: Serde of the keys.
            value: Serde of the values.

        Raises:
            TopologyError: The application reads or writes the topic already.
        """
        self._topology.add_sink(make_sink(self._node, topic, key, value))

    def through(self, topic: str) -> Table:
        """Write the table to a topic and continue from it in a separate query.

        The window of a windowed key is not written: make it part of the key first, with
        `to_stream().map`.

        Args:
            topic: Topic to write and read.
        """
        node = self._node
        refuse_untyped("through", node.key, node.value)
        key, value = default_serde(node.key), default_serde(node.value)
        self.to(topic, key=key, value=value)
        source = make_source(topic, key, value, None, "earliest", "stop", is_table=True)
        return Table(self._topology, source)


class GlobalTable:
    """A table that streams can join by any key."""

    def __init__(self, source: Source) -> None:
        self._node = replace(source, is_table=True)

    def __repr__(self) -> str:
        return f"GlobalTable(key={self._node.key}, value={self._node.value})"
