"""Aggregations of a table by another key: two queries with an internal topic between them.

The first query writes the old and the new value of each row that changes. The second subtracts the
old value from the group to which it belonged and adds the new one to its group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.streams.aggregates import Aggregate
from ottla.streams.errors import topology_error
from ottla.streams.operators.aggregations import STATEFUL_FUNCTIONS, aggregate_type
from ottla.streams.operators.checks import (
    refuse_second_state,
    refuse_untyped,
    shape_of,
)
from ottla.streams.operators.topics import Source, make_sink, source_topic_of
from ottla.streams.plan.node import Function, Node, UnaryNode, engine_of
from ottla.streams.plan.shapes import Column, DataShape, parse_shape, record_shape, type_of
from ottla.streams.plan.tracing import InPython, format_function, in_python, trace
from ottla.streams.serdes import Serde, default_serde
from ottla.streams.state.folds import Add, Fold, of_aggregates, of_aggregator
from ottla.streams.topology import Topology


@dataclass(frozen=True, eq=False)
class Changing(UnaryNode):
    """Old and new values of a table: the first step of grouping it by another key."""

    @property
    def state_word(self) -> str:
        return "aggregated"

    @property
    def engine(self) -> str:
        return "Python state"

    def describe(self) -> tuple[str, str]:
        return "changes", "of each key: before and now"


@dataclass(frozen=True, eq=False)
class TableAggregated(UnaryNode):
    """Aggregation of the changes: the second step of grouping a table by another key.

    `function` returns the new key of a value of shape `input_shape`; old values are subtracted
    and new ones added.
    """

    input_shape: DataShape
    function: Function
    what: str
    fold: Fold
    subtract: Add
    functions: tuple[InPython, ...]

    @property
    def functions_used(self) -> tuple[Function, ...]:
        return (self.function, *self.functions)

    @property
    def state_word(self) -> str:
        return "aggregated"

    @property
    def engine(self) -> str:
        return f"Python state; {engine_of(self.function)}"

    def describe(self) -> tuple[str, str]:
        return "aggregate", f"{self.what} by {format_function(self.function)} -> {self.value}"


class TableGrouping:
    """Rows of a table to aggregate by another key."""

    def __init__(self, node: Node, function: Callable[..., Any], schema: str | None) -> None:
        refuse_second_state("group_by", node)
        refuse_untyped("group_by", node.key, node.value)
        self._node = node
        self._function = trace("group_by", function, node.key, node.value)
        self._key = shape_of("group_by", self._function, schema)
        refuse_untyped("group_by", self._key)

    def aggregated(
        self, topology: Topology, name: str, aggregate: Aggregate, subtract: Add
    ) -> TableAggregated:
        """Return an aggregation with a named aggregate and the function that subtracts a row."""
        shape = record_shape(Column(name, aggregate_type(name, aggregate, self._node.value)))
        refuse_untyped("aggregate", shape)
        fold = of_aggregates(((name, aggregate),))
        return self._aggregated(topology, f"{name}={aggregate}", fold, subtract, shape, ())

    def folded(
        self,
        topology: Topology,
        initial: Callable[[], Any],
        add: Callable[..., Any],
        subtract: Callable[..., Any],
        schema: str,
        finish: Callable[[Any], Any] | None,
    ) -> TableAggregated:
        """Return an aggregation with functions."""
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
        shape = parse_shape(schema)
        return self._aggregated(topology, what, adding, subtracting.add, shape, functions)

    def _aggregated(
        self,
        topology: Topology,
        what: str,
        fold: Fold,
        subtract: Add,
        shape: DataShape,
        functions: tuple[InPython, ...],
    ) -> TableAggregated:
        source = _changes_of(self._node, topology)
        return TableAggregated(
            self._key, shape, source, self._node.value, self._function, what, fold, subtract,
            functions,
        )  # fmt: skip


def _changes_of(node: Node, topology: Topology) -> Source:
    """Return the internal topic of a table's changes, which a sink writes once."""
    of_type = type_of(node.value)
    both = record_shape(Column("before", of_type), Column("now", of_type))
    key, value = default_serde(node.key), Serde("json", both)
    writing = (
        each
        for each in topology.sinks
        if isinstance(each.parent, Changing) and each.parent.parent is node
    )
    topic = next((each.topic for each in writing), None)
    if topic is None:
        topic = topology.unused_topic_name(f"{topology.name}-{source_topic_of(node)}-changes")
        changing = Changing(node.key, both, node)
        topology.add_sink(make_sink(changing, topic, key, value, is_internal=True))
    return Source(node.key, both, topic, key, value)
