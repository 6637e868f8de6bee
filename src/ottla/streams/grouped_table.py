"""Aggregations of a table by another key.

When a row changes or moves to another key, its old value is subtracted from the old group and its
new value is added to the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.streams.checks import (
    aggregate_type,
    make_sink,
    parse_schema,
    refuse_second_state,
    refuse_untyped,
    shape_of,
)
from ottla.streams.errors import topology_error
from ottla.streams.grouped import STATEFUL_FUNCTIONS
from ottla.streams.joins import source_topic_of
from ottla.streams.plan.nodes import Changing, Node, Sink, Source, TableAggregated
from ottla.streams.plan.shapes import Column, DataShape, record_shape, type_of
from ottla.streams.plan.tracing import InPython, in_python, trace
from ottla.streams.serdes import Serde, default_serde
from ottla.streams.state.folds import Fold, of_aggregates, of_aggregator
from ottla.streams.table import Table
from ottla.streams.topology import Topology

if TYPE_CHECKING:
    from ottla.streams.aggregates import Aggregate


class GroupedTable:
    """Rows of a table grouped by another key, for aggregation. Rows with a null key are skipped."""

    def __init__(
        self, topology: Topology, node: Node, function: Callable[..., Any], schema: str | None
    ) -> None:
        refuse_second_state("group_by", node)
        refuse_untyped("group_by", node.key, node.value)
        self._topology = topology
        self._node = node
        self._function = trace("group_by", function, node.key, node.value)
        self._key = shape_of("group_by", self._function, schema)
        refuse_untyped("group_by", self._key)

    def count(self) -> Table:
        """Count the rows of each group."""
        from ottla.streams.aggregates import count

        return self._named("count", count(), lambda total, key, value: [total[0] - 1])

    def sum(self, column: str | None = None) -> Table:
        """Sum a column for each group.

        Args:
            column: Column of the value; None takes the value itself.
        """
        from ottla.streams.aggregates import sum as total_of

        def subtract(total: Any, key: Any, value: Any) -> Any:
            one = value if column is None else value[column]
            return total if one is None else [total[0] - one]

        return self._named("sum", total_of(column), subtract)

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
        if not callable(initial):
            raise topology_error(
                "aggregate", "pass functions: aggregate(initial, add, subtract, schema=…)"
            )
        made = [
            in_python("aggregate", each, STATEFUL_FUNCTIONS, arities=(2, 3))
            for each in (add, subtract)
        ]
        adding, subtracting = (
            of_aggregator(initial, each.function, each.arity, None, finish) for each in made
        )
        more = (initial, *(() if finish is None else (finish,)))
        functions = (*made, *(InPython(each, 0, STATEFUL_FUNCTIONS) for each in more))
        what = ", ".join(f"{each.name}()" for each in functions)
        return self._aggregated(what, adding, subtracting.add, parse_schema(schema), functions)

    def _named(self, name: str, aggregate: Aggregate, subtract: Any) -> Table:
        of_type = aggregate_type(name, aggregate, self._node.value)
        shape = record_shape(Column(name, of_type))
        refuse_untyped("aggregate", shape)
        fold = of_aggregates(((name, aggregate),))
        return self._aggregated(f"{name}={aggregate}", fold, subtract, shape, ())

    def _aggregated(
        self,
        what: str,
        fold: Fold,
        subtract: Any,
        shape: DataShape,
        functions: tuple[InPython, ...],
    ) -> Table:
        node, topology = self._node, self._topology
        of_type = type_of(node.value)
        both = record_shape(Column("before", of_type), Column("now", of_type))
        key, value = default_serde(node.key), Serde("json", both)
        topic = next(
            (each.topic for each in topology.sinks if _writes_changes_of(each, node)), None
        )
        if topic is None:
            topic = topology.unused_topic_name(f"{topology.name}-{source_topic_of(node)}-changes")
            changing = Changing(node.key, both, node)
            topology.add_sink(make_sink(changing, topic, key, value, is_internal=True))
        source = Source(node.key, both, topic, key, value, None, "earliest", "stop", False)
        made = TableAggregated(
            self._key, shape, source, node.value, self._function, "aggregate", what, fold,
            subtract, functions,
        )  # fmt: skip
        return Table(topology, made)


def _writes_changes_of(sink: Sink, node: Node) -> bool:
    """Return whether the sink writes the changes of the table."""
    return isinstance(sink.parent, Changing) and sink.parent.parent is node
