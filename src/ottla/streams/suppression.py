"""Suppression of tables by time.

Waiting changes need state, and a query has only one. An aggregation that Spark would keep in its
own state is therefore moved to Python state, where the changes can wait beside it.
"""

from __future__ import annotations

from dataclasses import replace

from ottla.streams.checks import has_state, refuse_second_state, refuse_untyped
from ottla.streams.plan.nodes import (
    Aggregated,
    MapValues,
    Node,
    PythonAggregated,
    Suppressed,
    TableFilter,
)
from ottla.streams.plan.shapes import record_shape
from ottla.streams.state.folds import of_aggregates

REASON = "changes are held until a time limit"


def with_time_limit(node: Node, limit_ms: int) -> Node:
    """Return a table whose keys change at most once in `limit_ms` of event time."""
    if not has_state(node):
        refuse_untyped("suppress", node.key, node.value)
    elif isinstance(node, MapValues | TableFilter):
        # Stateless operators may as well run on the changes that pass the suppression.
        return replace(node, parent=with_time_limit(node.parent, limit_ms))
    elif isinstance(node, Aggregated):
        node = _moved_to_python(node)
    elif not isinstance(node, PythonAggregated):
        refuse_second_state("suppress", node)
    return Suppressed(node.key, node.value, node, limit_ms)


def _moved_to_python(node: Aggregated) -> PythonAggregated:
    names = [name for name, _ in node.aggregates]
    outcome = record_shape(*(each for each in node.value.columns if each.name in names))
    refuse_untyped("suppress", node.key, outcome)
    return PythonAggregated(
        node.key,
        node.value,
        node.parent,
        "aggregate",
        ", ".join(f"{name}={each}" for name, each in node.aggregates),
        REASON,
        of_aggregates(node.aggregates),
        outcome,
        node.window,
        None,
        (),
    )
