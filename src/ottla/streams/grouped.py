"""Aggregations by key, in Spark's own state where possible and in Python state otherwise.

| aggregation | state |
|---|---|
| `st.sum` and its like; no window, tumbling, hopping, closed sessions | Spark |
| the same in sliding windows, in open sessions, or with late records to a topic | Python |
| `reduce`, `aggregate` with functions | Python, except for a plain sum, min or max |
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from ottla.streams.aggregates import Aggregate, count
from ottla.streams.checks import (
    aggregate_type,
    parse_schema,
    refuse_second_state,
    refuse_untyped,
)
from ottla.streams.errors import listed, topology_error
from ottla.streams.plan.expressions import Call, ColumnReference
from ottla.streams.plan.nodes import Aggregated, MapValues, Node, PythonAggregated
from ottla.streams.plan.shapes import VALUE, Column, DataShape, record_shape
from ottla.streams.plan.tracing import InPython, Traced, in_python, trace_pair
from ottla.streams.serdes import DeadLetter
from ottla.streams.state.folds import Fold, of_aggregates, of_aggregator, of_reducer
from ottla.streams.table import Table
from ottla.streams.topology import Topology
from ottla.streams.windows import Window

WINDOW_COLUMNS = (Column("window_start", "timestamp"), Column("window_end", "timestamp"))
LATE_POLICIES = ("drop",)
STATEFUL_FUNCTIONS = "functions with state"
_SUMMABLE_TYPES = ("bigint", "double")
_SPARK_REDUCERS = ((builtins.min, "min"), (builtins.max, "max"))
"""Reducers for which Spark has an aggregate."""


class Grouped:
    """Records grouped by key, for aggregation. Records without key or value are skipped."""

    def __init__(
        self,
        topology: Topology,
        node: Node,
        window: Window | None = None,
        late: DeadLetter | None = None,
    ) -> None:
        self._topology = topology
        self._node = node
        self._window = window
        self._late = late

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
        if self._window is not None:
            raise topology_error("windowed", f"the records already have a window: {self._window}")
        if not isinstance(window, Window):
            raise topology_error(
                "windowed", "the window must be st.tumbling, st.hopping, st.sliding or st.session"
            )
        if late not in LATE_POLICIES and not isinstance(late, DeadLetter):
            raise topology_error(
                "windowed",
                f"late={late!r} is invalid; use {listed(LATE_POLICIES)} or st.DeadLetter(topic)",
            )
        letter = late if isinstance(late, DeadLetter) else None
        return Grouped(self._topology, self._node, window, letter)

    def count(self) -> Table:
        """Count the records of each key."""
        return self.aggregate(count=count())

    def sum(self, column: str | None = None) -> Table:
        """Sum a column for each key.

        Args:
            column: Column of the value; None takes the value itself.
        """
        return self.aggregate(sum=Aggregate("sum", column))

    def min(self, column: str | None = None) -> Table:
        """Keep the smallest value of a column for each key.

        Args:
            column: Column of the value; None takes the value itself.
        """
        return self.aggregate(min=Aggregate("min", column))

    def max(self, column: str | None = None) -> Table:
        """Keep the largest value of a column for each key.

        Args:
            column: Column of the value; None takes the value itself.
        """
        return self.aggregate(max=Aggregate("max", column))

    def mean(self, column: str | None = None) -> Table:
        """Compute the mean of a column for each key.

        Args:
            column: Column of the value; None takes the value itself.
        """
        return self.aggregate(mean=Aggregate("mean", column))

    def reduce(self, function: Callable[[Any, Any], Any]) -> Table:
        """Combine the values of each key, starting with the first one.

        Args:
            function: Function of the aggregate and the value that returns the new aggregate. None
                deletes the key.

        Example:
            amounts.group_by_key().reduce(lambda total, amount: total + amount)
        """
        node = self._node
        refuse_second_state("reduce", node)
        made = trace_pair("reduce", function, node.value, node.value)
        spark_function = next((name for each, name in _SPARK_REDUCERS if each is function), None)
        spark_function = "sum" if self._is_sum(made) else spark_function
        if spark_function is not None and (reduced := self._reduced(spark_function)) is not None:
            return Table(self._topology, reduced)
        refuse_untyped("reduce", node.key, node.value)
        kept = (InPython(function, 2, STATEFUL_FUNCTIONS),)
        return self._python_aggregated(
            "reduce", "{}", of_reducer(function), node.value, kept, STATEFUL_FUNCTIONS
        )

    def _is_sum(self, made: Traced | InPython) -> bool:
        value = self._node.value
        if (
            not isinstance(made, Traced)
            or value.is_record
            or value.columns[0].type not in _SUMMABLE_TYPES
        ):
            return False
        match made.outcome:
            case Call(
                function="+", arguments=(ColumnReference() as one, ColumnReference() as other)
            ):
                return {one.origin, other.origin} == {"left", "right"}
        return False

    def _reduced(self, function: str) -> Node | None:
        """Return a sum, minimum or maximum of plain values in Spark's state, or None.

        Spark's own state is several times as fast as Python state.
        """
        value, window = self._node.value, self._window
        if value.is_record or self._late is not None:
            return None
        if window is not None and window.every_ms is None:
            return None
        columns = () if window is None else WINDOW_COLUMNS
        of_type = value.columns[0].type
        shape = record_shape(*columns, Column(VALUE, of_type))
        total = (VALUE, Aggregate(function, None))
        node = Aggregated(self._node.key, shape, self._node, window, (total,))
        chosen = Traced(ColumnReference(of_type, "value", VALUE))
        return MapValues(node.key, value, node, chosen)

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
        refuse_second_state("aggregate", self._node)
        if initial is None and add is None:
            return self._aggregated(aggregates)
        if aggregates:
            raise topology_error(
                "aggregate", f"pass either functions or {listed(aggregates)}, not both"
            )
        if not (callable(initial) and callable(add)):
            raise topology_error(
                "aggregate", "pass two functions: aggregate(initial, add, schema=…)"
            )
        if schema is None:
            raise topology_error("aggregate", 'specify the result: schema="total double, n bigint"')
        is_session = self._window is not None and self._window.is_session
        if is_session and merge is None:
            raise topology_error(
                "aggregate", "sessions can merge; pass merge=, a function of two aggregates"
            )
        made = in_python("aggregate", add, STATEFUL_FUNCTIONS, arities=(2, 3))
        refuse_untyped("aggregate", self._node.key)
        more = (each for each in (merge, finish) if each is not None)
        functions = [InPython(initial, 0, STATEFUL_FUNCTIONS), made]
        functions += [InPython(each, 1, STATEFUL_FUNCTIONS) for each in more]
        fold = of_aggregator(initial, add, made.arity, merge, finish)
        shape = parse_schema(schema)
        return self._python_aggregated(
            "aggregate", "{}", fold, shape, tuple(functions), STATEFUL_FUNCTIONS
        )

    def _aggregated(self, aggregates: dict[str, Aggregate]) -> Table:
        node, window = self._node, self._window
        if not aggregates:
            raise topology_error(
                "aggregate", "name at least one aggregate: aggregate(n=st.count())"
            )
        columns: list[Column] = []
        for name, each in aggregates.items():
            if window is not None and name in [column.name for column in WINDOW_COLUMNS]:
                raise topology_error("aggregate", f"{name} is a reserved column of the window")
            columns.append(Column(name, aggregate_type(name, each, node.value)))
        named = tuple(aggregates.items())
        if window is None or (window.every_ms is not None and self._late is None):
            before = () if window is None else WINDOW_COLUMNS
            return Table(
                self._topology,
                Aggregated(node.key, record_shape(*before, *columns), node, window, named),
            )
        why = "late records are emitted"
        if self._late is None:
            why = "sliding windows" if window.is_sliding else "open sessions are emitted"
        what = ", ".join(f"{name}={each}" for name, each in named)
        refuse_untyped("aggregate", node.key, record_shape(*columns))
        table = self._python_aggregated(
            "aggregate", what, of_aggregates(named), record_shape(*columns), (), why
        )
        if window.is_session and self._late is None:
            # Sessions that are suppressed until they close are kept in Spark's state.
            shape = record_shape(*WINDOW_COLUMNS, *columns)
            table.when_suppressed = Aggregated(node.key, shape, node, window, named)
        return table

    def _python_aggregated(
        self,
        operator: str,
        what: str,
        fold: Fold,
        shape: DataShape,
        functions: tuple[InPython, ...],
        why: str,
    ) -> Table:
        value = shape
        if self._window is not None and shape.is_record:
            window_columns = [each for each in WINDOW_COLUMNS if each.name not in shape.names]
            value = record_shape(*window_columns, *shape.columns)
        node = PythonAggregated(
            self._node.key,
            value,
            self._node,
            operator,
            what.format(", ".join(f"{each.name}()" for each in functions)),
            why,
            fold,
            shape,
            self._window,
            self._late,
            functions,
        )
        return Table(self._topology, node)
