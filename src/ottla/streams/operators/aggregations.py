"""Aggregations by key, in Spark's own state where possible and in Python state otherwise.

| aggregation | state |
|---|---|
| `st.sum` and its like; no window, tumbling, hopping, closed sessions | Spark |
| the same in sliding windows, in open sessions, or with late records to a topic | Python |
| `reduce`, `aggregate` with functions | Python, except for a plain sum, min or max |
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ottla.streams.aggregates import Aggregate, AggregateFunction
from ottla.streams.durations import format_duration
from ottla.streams.errors import listed, topology_error
from ottla.streams.operators.chains import first_state, refuse_unless_combinable
from ottla.streams.operators.checks import refuse_second_state, refuse_untyped
from ottla.streams.operators.stateless import MapValues, TableFilter
from ottla.streams.plan.expressions import Call, ColumnReference
from ottla.streams.plan.node import Function, Node, UnaryNode, ancestors, has_state
from ottla.streams.plan.shapes import VALUE, Column, DataShape, parse_shape, record_shape
from ottla.streams.plan.tracing import InPython, Traced, in_python, trace_pair
from ottla.streams.serdes import DeadLetter
from ottla.streams.state.folds import Fold, of_aggregates, of_aggregator, of_reducer
from ottla.streams.windows import Window

WINDOW_COLUMNS = (Column("window_start", "timestamp"), Column("window_end", "timestamp"))
LATE_POLICIES = ("drop",)
STATEFUL_FUNCTIONS = "functions with state"
_SUMMABLE_TYPES = ("bigint", "double")
_SPARK_REDUCERS: tuple[tuple[object, AggregateFunction], ...] = (
    (builtins.min, "min"),
    (builtins.max, "max"),
)
"""Reducers for which Spark has an aggregate."""

NamedAggregates = tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True, eq=False)
class Aggregated(UnaryNode):
    """Aggregation in Spark's state, per key, and per window if there is one."""

    window: Window | None
    aggregates: NamedAggregates

    @property
    def emits_changes(self) -> bool:
        return True

    @property
    def is_windowed(self) -> bool:
        return self.window is not None

    @property
    def state_word(self) -> str:
        return "aggregated"

    @property
    def engine(self) -> str:
        first = first_state(self.parent)
        if first is None:
            return "state"
        return f"state, in the same query as the {first.describe()[0]}"

    def describe(self) -> tuple[str, str]:
        return "aggregate", _by_key(_words(self.aggregates), self.window)


@dataclass(frozen=True, eq=False)
class PythonAggregated(UnaryNode):
    """Aggregation in Python state with `fold`, per key, and per window if there is one.

    Late records go to the topic of `late`. `operator`, `what` and `why` describe the node in
    `explain`; `outcome` is the value without the columns of the window. `when_suppressed` is the
    same aggregation in Spark's state, if that can emit its final results.
    """

    operator: Literal["aggregate", "reduce"]
    what: str
    why: str
    fold: Fold
    outcome: DataShape
    window: Window | None
    late: DeadLetter | None
    functions: tuple[InPython, ...]
    when_suppressed: Aggregated | None = None

    @property
    def is_windowed(self) -> bool:
        return self.window is not None

    @property
    def late_topic(self) -> str | None:
        return None if self.late is None else self.late.topic

    @property
    def functions_used(self) -> tuple[Function, ...]:
        return self.functions

    @property
    def state_word(self) -> str:
        return "aggregated"

    @property
    def engine(self) -> str:
        return f"Python state: {self.why}"

    def describe(self) -> tuple[str, str]:
        return self.operator, f"{_by_key(self.what, self.window)} -> {self.value}"


def _words(aggregates: NamedAggregates) -> str:
    return ", ".join(f"{name}={each}" for name, each in aggregates)


def _by_key(what: str, window: Window | None) -> str:
    return f"{what} by key" + (f", {window}" if window is not None else "")


def windows_of(node: Node) -> list[Window]:
    """Return the windows of the aggregations upstream of a node."""
    windows = (
        each.window for each in ancestors(node) if isinstance(each, Aggregated | PythonAggregated)
    )
    return [each for each in windows if each is not None]


# --------------------------------------------------------------------------------- grouped records


@dataclass(frozen=True)
class Grouping:
    """Records to aggregate by key, and by window if there is one."""

    node: Node
    window: Window | None = None
    late: DeadLetter | None = None

    def windowed(self, window: Window, late: str | DeadLetter) -> Grouping:
        """Check the arguments of `windowed`, and return the records grouped by window as well."""
        if self.window is not None:
            raise topology_error("windowed", f"the records already have a window: {self.window}")
        if not isinstance(window, Window):
            raise topology_error(
                "windowed", "the window must be st.tumbling, st.hopping, st.sliding or st.session"
            )
        if late not in LATE_POLICIES and not isinstance(late, DeadLetter):
            raise topology_error(
                "windowed",
                f"late={late!r} is invalid; use {listed(LATE_POLICIES)} or st.DeadLetter(topic)",
            )
        return Grouping(self.node, window, late if isinstance(late, DeadLetter) else None)

    def reduced(self, function: Callable[[Any, Any], Any]) -> Node:
        node = self.node
        made = trace_pair("reduce", function, node.value, node.value)
        in_spark = next((name for each, name in _SPARK_REDUCERS if each is function), None)
        in_spark = "sum" if _is_sum(made, node.value) else in_spark
        if in_spark is not None and (reduced := self._reduced_in_spark(in_spark)) is not None:
            refuse_unless_combinable("reduce", node, self.window)
            return reduced
        refuse_second_state("reduce", node)
        refuse_untyped("reduce", node.key, node.value)
        functions = (InPython(function, 2, STATEFUL_FUNCTIONS),)
        return self._in_python(
            "reduce", _names(functions), of_reducer(function), node.value, functions,
            STATEFUL_FUNCTIONS,
        )  # fmt: skip

    def _reduced_in_spark(self, function: AggregateFunction) -> Node | None:
        """Return a sum, minimum or maximum of plain values in Spark's state, or None.

        Spark's own state is several times as fast as Python state.
        """
        value, window = self.node.value, self.window
        if value.is_record or self.late is not None:
            return None
        if window is not None and window.every_ms is None:
            return None
        columns = () if window is None else WINDOW_COLUMNS
        of_type = value.columns[0].type
        shape = record_shape(*columns, Column(VALUE, of_type))
        total = (VALUE, Aggregate(function, None))
        node = Aggregated(self.node.key, shape, self.node, window, (total,))
        chosen = Traced(ColumnReference(of_type, "value", VALUE))
        return MapValues(node.key, value, node, chosen)

    def aggregated(self, aggregates: Mapping[str, Aggregate]) -> Node:
        """Return an aggregation with named aggregates."""
        if not aggregates:
            raise topology_error(
                "aggregate", "name at least one aggregate: aggregate(n=st.count())"
            )
        node, window = self.node, self.window
        columns: list[Column] = []
        for name, each in aggregates.items():
            if window is not None and name in [column.name for column in WINDOW_COLUMNS]:
                raise topology_error("aggregate", f"{name} is a reserved column of the window")
            columns.append(Column(name, aggregate_type(name, each, node.value)))
        named = tuple(aggregates.items())
        before = () if window is None else WINDOW_COLUMNS
        in_spark = Aggregated(node.key, record_shape(*before, *columns), node, window, named)
        if window is None or (window.every_ms is not None and self.late is None):
            refuse_unless_combinable("aggregate", node, window)
            return in_spark
        refuse_second_state("aggregate", node)
        why = "late records are emitted"
        if self.late is None:
            why = "sliding windows" if window.is_sliding else "open sessions are emitted"
        shape = record_shape(*columns)
        refuse_untyped("aggregate", node.key, shape)
        made = self._in_python("aggregate", _words(named), of_aggregates(named), shape, (), why)
        if window.is_session and self.late is None:
            # Sessions that are suppressed until they close are kept in Spark's state.
            return replace(made, when_suppressed=in_spark)
        return made

    def folded(
        self,
        initial: Callable[[], Any] | None,
        add: Callable[..., Any] | None,
        schema: str | None,
        merge: Callable[[Any, Any], Any] | None,
        finish: Callable[[Any], Any] | None,
    ) -> Node:
        """Return an aggregation with functions."""
        refuse_second_state("aggregate", self.node)
        if not (callable(initial) and callable(add)):
            raise topology_error(
                "aggregate", "pass two functions: aggregate(initial, add, schema=…)"
            )
        if schema is None:
            raise topology_error("aggregate", 'specify the result: schema="total double, n bigint"')
        is_session = self.window is not None and self.window.is_session
        if is_session and merge is None:
            raise topology_error(
                "aggregate", "sessions can merge; pass merge=, a function of two aggregates"
            )
        made = in_python("aggregate", add, STATEFUL_FUNCTIONS, arities=(2, 3))
        refuse_untyped("aggregate", self.node.key)
        more = (each for each in (merge, finish) if each is not None)
        functions = (
            InPython(initial, 0, STATEFUL_FUNCTIONS),
            made,
            *(InPython(each, 1, STATEFUL_FUNCTIONS) for each in more),
        )
        fold = of_aggregator(initial, add, made.arity, merge, finish)
        shape = parse_shape(schema)
        return self._in_python(
            "aggregate", _names(functions), fold, shape, functions, STATEFUL_FUNCTIONS
        )

    def _in_python(
        self,
        operator: Literal["aggregate", "reduce"],
        what: str,
        fold: Fold,
        shape: DataShape,
        functions: tuple[InPython, ...],
        why: str,
    ) -> PythonAggregated:
        value = shape
        if self.window is not None and shape.is_record:
            window_columns = [each for each in WINDOW_COLUMNS if each.name not in shape.names]
            value = record_shape(*window_columns, *shape.columns)
        return PythonAggregated(
            self.node.key, value, self.node, operator, what, why, fold, shape, self.window,
            self.late, functions,
        )  # fmt: skip


def _names(functions: tuple[InPython, ...]) -> str:
    return ", ".join(f"{each.name}()" for each in functions)


def _is_sum(made: Function, value: DataShape) -> bool:
    if (
        not isinstance(made, Traced)
        or value.is_record
        or value.columns[0].type not in _SUMMABLE_TYPES
    ):
        return False
    match made.outcome:
        case Call(function="+", arguments=(ColumnReference() as one, ColumnReference() as other)):
            return {one.origin, other.origin} == {"left", "right"}
    return False


def aggregate_type(name: str, aggregate: Aggregate, value: DataShape) -> str | None:
    """Return the type of an aggregate's result, or None if only Spark can infer it."""
    if not isinstance(aggregate, Aggregate):
        raise topology_error("aggregate", f'{name} must be an aggregate such as st.sum("amount")')
    if aggregate.column is None:
        if aggregate.function == "count":
            return "bigint"
        if value.is_record:
            raise topology_error(
                "aggregate", f"{name}={aggregate}: name one of the columns: {listed(value.names)}"
            )
        column = value.columns[0]
    else:
        found = value.find(aggregate.column) if value.is_record else None
        if found is None:
            names = (
                listed(value.names) if value.is_record else "none, because values are not records"
            )
            raise topology_error(
                "aggregate",
                f"{name}={aggregate}: unknown column {aggregate.column!r}; columns: {names}",
            )
        column = found
    if not aggregate.accepts(column.type):
        raise topology_error("aggregate", f"{name}={aggregate}: column {column} is not a number")
    return aggregate.type_of(column.type)


# ------------------------------------------------------------------------------------- suppression


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

    @property
    def late_topic(self) -> str | None:
        return self.parent.late_topic

    @property
    def state_word(self) -> str | None:
        return "suppressed" if self._has_own_state else None

    @property
    def engine(self) -> str:
        return "Python state" if self._has_own_state else ""

    @property
    def _has_own_state(self) -> bool:
        # Directly after an aggregation, changes wait in the state of the aggregation.
        return self.limit_ms is not None and not isinstance(self.parent, PythonAggregated)

    def describe(self) -> tuple[str, str]:
        if self.limit_ms is None:
            return "suppress", "until the window closes"
        return "suppress", f"until a time limit of {format_duration(self.limit_ms)}"


def with_final_results(node: Node) -> Suppressed:
    """Return a table that emits only the final result of each window."""
    if isinstance(node, PythonAggregated):
        node = node.when_suppressed or node
    if not isinstance(node, Aggregated | PythonAggregated) or node.window is None:
        raise topology_error(
            "suppress", "only windows close; use windowed(…) before it, and suppress only once"
        )
    return Suppressed(node.key, node.value, node)


def with_time_limit(node: Node, limit_ms: int) -> Node:
    """Return a table whose keys change at most once in `limit_ms` of event time.

    Waiting changes need state, and a query has only one. An aggregation that Spark would keep in
    its own state is therefore moved to Python state, where the changes can wait beside it.
    """
    if isinstance(node, Suppressed):
        raise topology_error("suppress", "the table is already suppressed")
    return _with_time_limit(node, limit_ms)


def _with_time_limit(node: Node, limit_ms: int) -> Node:
    if not has_state(node):
        refuse_untyped("suppress", node.key, node.value)
    elif isinstance(node, MapValues | TableFilter):
        # Stateless operators may as well run on the changes that pass the suppression.
        return replace(node, parent=_with_time_limit(node.parent, limit_ms))
    elif isinstance(node, Aggregated):
        refuse_second_state("suppress", node.parent)
        node = _moved_to_python(node)
    elif not isinstance(node, PythonAggregated):
        refuse_second_state("suppress", node)
    return Suppressed(node.key, node.value, node, limit_ms)


def _moved_to_python(node: Aggregated) -> PythonAggregated:
    names = [name for name, _ in node.aggregates]
    outcome = record_shape(*(each for each in node.value.columns if each.name in names))
    refuse_untyped("suppress", node.key, outcome)
    return PythonAggregated(
        node.key, node.value, node.parent, "aggregate", _words(node.aggregates),
        "changes are held until a time limit", of_aggregates(node.aggregates), outcome, node.window,
        None, (),
    )  # fmt: skip
