"""Streams, tables and groups: the methods with which users build a topology.

A `Stream` holds events, a `Table` the latest value of each key. A method checks its arguments when
it is called; an error names the operator, the line of the call and the valid choices. The checks
and the nodes that the methods return are in `ottla.streams.operators`.

The classes are in one module because they return each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ottla.base.deprecation import warn_deprecated
from ottla.streams import aggregates as named
from ottla.streams.aggregates import Aggregate
from ottla.streams.durations import Duration, duration_ms
from ottla.streams.errors import listed, topology_error
from ottla.streams.operators import aggregations, joins, processing, stateless, topics
from ottla.streams.operators.aggregations import Grouping
from ottla.streams.operators.checks import (
    refuse_after_late_topic,
    refuse_untyped,
)
from ottla.streams.operators.stateless import RecordFunction
from ottla.streams.operators.table_aggregations import TableGrouping
from ottla.streams.operators.topics import Source
from ottla.streams.plan.node import Node
from ottla.streams.serdes import DeadLetter, Json, Serde, default_serde
from ottla.streams.stateless_operators import StatelessOperators
from ottla.streams.topology import Topology
from ottla.streams.windows import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LABEL = re.compile(r"[A-Za-z0-9._-]{1,100}")


class Stream(StatelessOperators):
    """A stream of records: a topic, or the result of an operator."""

    def __repr__(self) -> str:
        return f"Stream(key={self._node.key}, value={self._node.value})"

    def to_df(self) -> DataFrame:
        """Return the stream as a streaming DataFrame, for your own queries.

        It has the columns key, value and timestamp. The active Spark session reads it; without
        one, this method starts Spark.
        """
        rows: DataFrame = self._topology.frame_of(self._node)
        return rows

    @property
    def df(self) -> DataFrame:
        """Streaming DataFrame of the stream. Deprecated: use `to_df()`."""
        warn_deprecated("df", "Use to_df().")
        return self.to_df()

    # ---------------------------------------------------------------------------- with state

    def group_by(self, function: RecordFunction, schema: str | None = None) -> Grouped:
        """Group records by a new key. Records with a null key are dropped, as in Kafka Streams.

        Args:
            function: Function over records that returns the key.
            schema: Schema of the key. Needed for functions that run in Python.
        """
        keyed = self.select_key(function, schema)
        return Grouped(self._topology, Grouping(keyed._node))

    def group_by_key(self) -> Grouped:
        """Group records by their key. Records with a null key are dropped, as in Kafka Streams."""
        return Grouped(self._topology, Grouping(self._node))

    def deduplicate(self, function: RecordFunction, *, within: Duration) -> Stream:
        """Keep the first record of each identifier and drop its repetitions.

        Records that are later than `within` are dropped, too.

        Args:
            function: Function over records that returns the identifier. It must run as columns.
            within: Event time during which a repetition is recognized.

        Example:
            orders.deduplicate(lambda order: order.id, within="1 hour")
        """
        return self._derived(processing.deduplicated(self._node, function, within))

    def process(
        self,
        processor: Any,
        *,
        schema: str,
        key_schema: str | None = None,
        clock: Duration | None = None,
    ) -> Stream:
        """Process the stream with a processor of your own.

        Args:
            processor: Subclass of `st.Processor`, or a function that returns an instance.
            schema: Schema of the values that it forwards.
            key_schema: Schema of the keys that it forwards, if it differs from the stream's.
            clock: Interval at which `on_wall_clock` timers are checked; 1 second by default.

        Raises:
            TopologyError: The processor is invalid.
        """
        made = processing.processed(self._node, processor, schema, key_schema, clock)
        return self._derived(made)

    def join(
        self,
        other: Stream | Table | GlobalTable,
        function: RecordFunction | None = None,
        *,
        how: str = "inner",
        within: Duration | None = None,
        grace: Duration = "0 seconds",
        on: RecordFunction | None = None,
        schema: str | None = None,
    ) -> Stream:
        """Join records with the same key.

        Args:
            other: A stream, joined by time as well; a table, joined with its current value; or a
                global table, joined with any key.
            function: Function of the left and the right value that returns the new value. None
                combines the columns of both.
            how: `"inner"` or `"left"`, and `"outer"` for two streams.
            within: Maximum difference of the timestamps. Streams only, and needed there.
            grace: How late records may be. Streams only.
            on: Function over records that returns the key to look up. Global tables only.
            schema: Schema of the new value. Needed for functions that run in Python.

        Raises:
            TopologyError: The two cannot be joined.

        Example:
            orders.join(payments, within="5 minutes")
            orders.join(customers, lambda order, customer: {"name": customer.name})
        """
        if isinstance(other, Table | GlobalTable):
            return self._join_table(other, function, how, within, on, schema)
        if not isinstance(other, Stream):
            raise topology_error("join", f"{other!r} is not a stream, table or global table")
        if on is not None:
            raise topology_error(
                "join", "on= applies only to global tables; use select_key on both streams"
            )
        made = joins.join_streams(self._node, other._node, function, how, within, grace, schema)
        return self._derived(made)

    def _join_table(
        self,
        table: Table | GlobalTable,
        function: RecordFunction | None,
        how: str,
        within: Duration | None,
        on: RecordFunction | None,
        schema: str | None,
    ) -> Stream:
        if within is not None:
            raise topology_error("join", "within= applies only to a join of two streams; remove it")
        if isinstance(table, GlobalTable):
            made = joins.join_global_table(self._node, table._node, function, how, on, schema)
            return self._derived(made)
        if on is not None:
            raise topology_error(
                "join", "on= applies only to global tables; use app.global_table or select_key"
            )
        return self._derived(joins.join_table(self._node, table._node, function, how, schema))

    # --------------------------------------------------------------------------------- ends

    def to(
        self,
        topic: str,
        *,
        key: Serde | type[Json] | None = None,
        value: Serde | type[Json] | None = None,
    ) -> None:
        """Write the stream to a topic.

        Text and bytes are written as they are, everything else as JSON. A windowed key includes
        its window in the format of Kafka Streams, unless `key` is given.

        Args:
            topic: Topic to write to.
            key: Serde of the keys.
            value: Serde of the values.

        Raises:
            TopologyError: The application reads or writes the topic already.
        """
        self._topology.add_sink(topics.make_sink(self._node, topic, key, value))

    def print(self, label: str) -> None:
        """Print each record to standard output as `[label]: key, value`.

        Args:
            label: Label that precedes the records.
        """
        if not _LABEL.fullmatch(label):
            raise topology_error(
                "print",
                f"label {label!r} is invalid; use letters, digits, dots, underscores and dashes",
            )
        self._topology.add_sink(topics.make_print_sink(self._node, label))

    def through(self, topic: str) -> Stream:
        """Write the stream to a topic and continue from it in a separate query.

        Deprecated, as in Kafka Streams: use `to(topic)`, and continue from `app.stream(topic)`.

        Args:
            topic: Topic to write and read.
        """
        warn_deprecated("through(topic)", "Use to(topic), and continue from app.stream(topic).")
        return Stream(self._topology, _through(self._topology, self._node, topic, is_table=False))


def _through(topology: Topology, node: Node, topic: str, *, is_table: bool) -> Source:
    """Write a node to a topic, and return the topic as a source."""
    refuse_untyped("through", node.key, node.value)
    key, value = default_serde(node.key), default_serde(node.value)
    topology.add_sink(topics.make_sink(node, topic, key, value))
    return topics.make_source(topic, key, value, is_table=is_table)


class Table:
    """A table: the latest value of each key."""

    def __init__(self, topology: Topology, node: Node) -> None:
        self._topology = topology
        self._node = node

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
        refuse_after_late_topic(operator, self._node)
        made = stateless.table_filtered(operator, self._node, predicate, negated=negated)
        return Table(self._topology, self._topology.with_failure_handling(made))

    def map_values(self, function: RecordFunction, schema: str | None = None) -> Table:
        """Replace the value of each key. Deleted keys stay deleted.

        Args:
            function: Function over records that returns the value.
            schema: Schema of the result. Needed for functions that run in Python.
        """
        refuse_after_late_topic("map_values", self._node)
        made = stateless.mapped_values(self._node, function, schema, keeps_null=True)
        return Table(self._topology, self._topology.with_failure_handling(made))

    # ------------------------------------------------------------------------------ with state

    def suppress(self, *, time_limit: Duration | None = None) -> Table:
        """Emit only the final result of each window, or limit the rate of changes.

        Args:
            time_limit: Event time in which each key changes at most once: a change waits for that
                long, and later ones replace it. None waits until the window closes.

        Raises:
            TopologyError: The table has no window and no `time_limit` is given.
        """
        if time_limit is None:
            return Table(self._topology, aggregations.with_final_results(self._node))
        limit_ms = duration_ms(time_limit, name="time_limit", min_ms=1)
        return Table(self._topology, aggregations.with_time_limit(self._node, limit_ms))

    def group_by(self, function: RecordFunction, schema: str | None = None) -> GroupedTable:
        """Group rows by another key, through a repartition topic between two queries.

        Args:
            function: Function over records that returns the key.
            schema: Schema of the key. Needed for functions that run in Python.
        """
        return GroupedTable(self._topology, TableGrouping(self._node, function, schema))

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
        if on is None:
            made: Node = joins.join_tables(mine, theirs, function, how, schema)
        else:
            made = joins.join_foreign_table(self._topology, mine, theirs, function, how, on, schema)
        return Table(self._topology, made)

    # ------------------------------------------------------------------------------------ ends

    def to_stream(self) -> Stream:
        """Return the changes of the table as a stream."""
        refuse_after_late_topic("to_stream", self._node)
        return Stream(self._topology, self._node)

    def to(
        self,
        topic: str,
        *,
        key: Serde | type[Json] | None = None,
        value: Serde | type[Json] | None = None,
    ) -> None:
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
        self._topology.add_sink(topics.make_sink(self._node, topic, key, value))

    def through(self, topic: str) -> Table:
        """Write the table to a topic and continue from it in a separate query.

        Deprecated, as in Kafka Streams: use `to(topic)`, and continue from `app.table(topic)`.

        The window of a windowed key is not written: make it part of the key first, with
        `to_stream().map`.

        Args:
            topic: Topic to write and read.
        """
        warn_deprecated("through(topic)", "Use to(topic), and continue from app.table(topic).")
        return Table(self._topology, _through(self._topology, self._node, topic, is_table=True))


class GlobalTable:
    """A table that streams can join by any key."""

    def __init__(self, source: Source) -> None:
        self._node = replace(source, is_table=True)

    def __repr__(self) -> str:
        return f"GlobalTable(key={self._node.key}, value={self._node.value})"


class Grouped:
    """Records grouped by key, for aggregation. Records without key or value are skipped."""

    def __init__(self, topology: Topology, grouping: Grouping) -> None:
        self._topology = topology
        self._grouping = grouping

    def windowed(self, window: Window, *, late: str | DeadLetter = "drop") -> Grouped:
        """Aggregate by window as well.

        Args:
            window: `st.tumbling`, `st.hopping`, `st.sliding` or `st.session`.
            late: `"drop"` drops records that arrive after their window has closed; a `DeadLetter`
                writes them to its topic in the same transaction as the windows.

        Raises:
            TopologyError: The records have a window already.

        Example:
            orders.group_by_key().windowed(st.tumbling("1 minute")).count()
        """
        return Grouped(self._topology, self._grouping.windowed(window, late))

    def count(self) -> Table:
        """Count the records of each key."""
        return self.aggregate(count=named.count())

    def sum(self, column: str | None = None) -> Table:
        """Sum a column for each key.

        Args:
            column: Column of the value; None takes the value itself.
        """
        return self.aggregate(sum=named.sum(column))

    def min(self, column: str | None = None) -> Table:
        """Keep the smallest value of a column for each key.

        Args:
            column: Column of the value; None takes the value itself.
        """
        return self.aggregate(min=named.min(column))

    def max(self, column: str | None = None) -> Table:
        """Keep the largest value of a column for each key.

        Args:
            column: Column of the value; None takes the value itself.
        """
        return self.aggregate(max=named.max(column))

    def mean(self, column: str | None = None) -> Table:
        """Compute the mean of a column for each key.

        Args:
            column: Column of the value; None takes the value itself.
        """
        return self.aggregate(mean=named.mean(column))

    def reduce(self, function: Callable[[Any, Any], Any]) -> Table:
        """Combine the values of each key, starting with the first one.

        Args:
            function: Function of the aggregate and the value that returns the new aggregate. None
                deletes the key.

        Example:
            amounts.group_by_key().reduce(lambda total, amount: total + amount)
        """
        return Table(self._topology, self._grouping.reduced(function))

    def aggregate(
        self,
        initial: Callable[[], Any] | None = None,
        add: Callable[..., Any] | None = None,
        /,
        *,
        schema: str | None = None,
        merge: Callable[[Any, Any], Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
        **aggregates: Aggregate,
    ) -> Table:
        """Aggregate the values of each key, with named aggregates or with functions.

        Args:
            initial: Function without arguments that returns the first aggregate. It may be any
                object that can be pickled.
            add: Function of (aggregate, value) or (aggregate, key, value) that returns the next
                aggregate. None deletes the key.
            schema: Schema of the result. Needed with functions.
            merge: Function of two aggregates that returns one. Needed for session windows.
            finish: Function of the aggregate that returns the result. None emits the aggregate.
            aggregates: Columns of the result, in place of functions.

        Raises:
            TopologyError: An argument is missing, or both ways are used.

        Example:
            orders.group_by_key().aggregate(total=st.sum("amount"), n=st.count())
            orders.group_by_key().aggregate(int, lambda n, order: n + 1, schema="bigint")
        """
        if initial is None and add is None:
            return Table(self._topology, self._grouping.aggregated(aggregates))
        if aggregates:
            raise topology_error(
                "aggregate", f"pass either functions or {listed(aggregates)}, not both"
            )
        made = self._grouping.folded(initial, add, schema, merge, finish)
        return Table(self._topology, made)


class GroupedTable:
    """Rows of a table grouped by another key, for aggregation. Rows with a null key are skipped."""

    def __init__(self, topology: Topology, grouping: TableGrouping) -> None:
        self._topology = topology
        self._grouping = grouping

    def count(self) -> Table:
        """Count the rows of each group."""

        def subtract(total: Any, key: Any, value: Any) -> Any:
            return [total[0] - 1]

        return self._aggregated("count", named.count(), subtract)

    def sum(self, column: str | None = None) -> Table:
        """Sum a column for each group.

        Args:
            column: Column of the value; None takes the value itself.
        """

        def subtract(total: Any, key: Any, value: Any) -> Any:
            one = value if column is None else value[column]
            return total if one is None else [total[0] - one]

        return self._aggregated("sum", named.sum(column), subtract)

    def aggregate(
        self,
        initial: Callable[[], Any],
        add: Callable[..., Any],
        subtract: Callable[..., Any],
        *,
        schema: str,
        finish: Callable[[Any], Any] | None = None,
    ) -> Table:
        """Aggregate the rows of each group with functions that add and subtract a row.

        A change of a row subtracts its old value and adds the new one. Both functions take
        (aggregate, value) or (aggregate, key, value), with the key of the group.

        Args:
            initial: Function without arguments that returns the first aggregate.
            add: Function that returns the aggregate with a row. None deletes the key.
            subtract: Function that returns the aggregate without a row. None deletes the key.
            schema: Schema of the result.
            finish: Function of the aggregate that returns the result. None emits the aggregate.

        Example:
            grouped.aggregate(int, lambda n, row: n + 1, lambda n, row: n - 1, schema="bigint")
        """
        made = self._grouping.folded(self._topology, initial, add, subtract, schema, finish)
        return Table(self._topology, made)

    def _aggregated(self, name: str, aggregate: Aggregate, subtract: Callable[..., Any]) -> Table:
        made = self._grouping.aggregated(self._topology, name, aggregate, subtract)
        return Table(self._topology, made)
