"""Checks that operators make when a topology is built, and the shapes of their results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ottla.streams.aggregates import Aggregate
from ottla.streams.errors import TopologyError, listed, topology_error
from ottla.streams.plan.nodes import (
    Aggregated,
    Changing,
    Deduplicated,
    ForeignJoin,
    Function,
    Node,
    Printed,
    Processed,
    PythonAggregated,
    Sink,
    Source,
    StreamJoin,
    Subscribing,
    Suppressed,
    TableAggregated,
    TablesJoin,
    UnaryNode,
    ancestors,
)
from ottla.streams.plan.shapes import (
    Column,
    DataShape,
    parse_record_shape,
    parse_type,
    plain_shape,
    record_shape,
    type_family,
    untyped_columns,
)
from ottla.streams.plan.tracing import InPython, Traced, trace
from ottla.streams.serdes import DeadLetter, Serde, default_serde, sink_serde, source_serde

BAD_RECORD_POLICIES = ("stop", "drop")
STATE_WORDS: dict[type[Node], str] = {
    Aggregated: "aggregated",
    PythonAggregated: "aggregated",
    Changing: "aggregated",
    TableAggregated: "aggregated",
    StreamJoin: "joined",
    TablesJoin: "joined",
    ForeignJoin: "joined",
    Subscribing: "joined",
    Processed: "processed",
    Deduplicated: "deduplicated",
}
"""Stateful operators and the word for their results. Spark allows one of them in a query."""


def state_word(node: Node) -> str | None:
    """Return the word for the results of a stateful operator, or None for a stateless one."""
    if isinstance(node, Suppressed) and node.limit_ms is not None:
        # Directly after an aggregation, changes wait in the state of the aggregation.
        return None if isinstance(node.parent, PythonAggregated) else "suppressed"
    return STATE_WORDS.get(type(node))


def shape_of(operator: str, function: Function, schema: str | None) -> DataShape:
    """Return the shape of a function's result."""
    if isinstance(function, InPython):
        if schema is None:
            raise topology_error(
                operator,
                f"the function runs in Python ({function.reason}), so specify what it returns: "
                'schema="double" or schema="item string, total double"',
            )
        return parse_schema(schema)
    outcome = function.outcome
    if isinstance(outcome, tuple):
        raise topology_error(operator, "the function must return one value or a dict")
    return _outcome_shape(operator, outcome)


def pair_shapes(
    operator: str, function: Function, schema: str | None, key_schema: str | None
) -> tuple[DataShape, DataShape]:
    """Return the shapes of the key and the value that a function returns as (key, value)."""
    if isinstance(function, InPython):
        if schema is None or key_schema is None:
            raise topology_error(
                operator,
                f"the function runs in Python ({function.reason}), so specify what it returns: "
                'key_schema="string", schema="item string, total double"',
            )
        return parse_schema(key_schema), parse_schema(schema)
    outcome = function.outcome
    if not isinstance(outcome, tuple) or len(outcome) != 2:
        raise topology_error(operator, "the function must return (key, value)")
    return _outcome_shape(operator, outcome[0]), _outcome_shape(operator, outcome[1])


def _outcome_shape(operator: str, outcome: object) -> DataShape:
    if isinstance(outcome, dict):
        if not outcome:
            raise topology_error(operator, "the function returns an empty dict")
        return record_shape(*(Column(name, each.type) for name, each in outcome.items()))
    of_type = getattr(outcome, "type", None)
    if of_type == "void":
        raise topology_error(operator, "the function returns None")
    return plain_shape(of_type)


def parse_schema(schema: str) -> DataShape:
    """Parse a schema such as `"double"` or `"item string, total double"`."""
    try:
        return plain_shape(parse_type(schema))
    except TopologyError:
        return parse_record_shape(schema)


def aggregate_type(name: str, aggregate: Aggregate, value: DataShape) -> str | None:
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
            names = listed(value.names) if value.is_record else "none, values are not records"
            raise topology_error(
                "aggregate",
                f"{name}={aggregate}: unknown column {aggregate.column!r}; columns: {names}",
            )
        column = found
    if not aggregate.accepts(column.type):
        raise topology_error("aggregate", f"{name}={aggregate}: column {column} is not a number")
    return aggregate.type_of(column.type)


def has_state(node: Node) -> bool:
    return any(state_word(each) is not None for each in ancestors(node))


def with_errors_caught(node: Node) -> Node:
    """Return the operator with a Python function that reports its exceptions instead of raising.

    Downstream of a stateful operator it is returned unchanged: the dead-letter query evaluates the
    function a second time, and stateful results can differ between two queries.
    """
    function = getattr(node, "function", None)
    if not isinstance(function, InPython) or not isinstance(node, UnaryNode) or has_state(node):
        return node
    return replace(node, function=replace(function, catches_errors=True))  # type: ignore[call-arg]


def refuse_second_state(operator: str, *nodes: Node) -> None:
    """Refuse a stateful operator if one of its inputs already has state."""
    for each in (above for node in nodes for above in ancestors(node)):
        what = state_word(each)
        if what is not None:
            raise topology_error(
                operator,
                f"its input is already {what}; put through(topic) between the two operators, so "
                "that they run as separate queries",
            )


def refuse_two_states(operator: str, node: Node) -> None:
    """Refuse an operator that runs in the same query as its inputs if several have state."""
    found = [what for each in ancestors(node) if (what := state_word(each)) is not None]
    if len(found) > 1:
        raise topology_error(
            operator,
            f"several inputs have state ({', '.join(found)}), but a query can have only one; put "
            "through(topic) after one of them",
        )


def refuse_after_late_topic(operator: str, node: Node) -> None:
    """Refuse an operator between windows with a late topic and their sink.

    Late records leave the query through the same sink as the windows' results.
    """
    if any(
        isinstance(each, PythonAggregated) and each.late is not None for each in ancestors(node)
    ):
        raise topology_error(
            operator,
            "late records go to a topic of their own; write the table with to(topic) first, or "
            "continue after through(topic)",
        )


def refuse_untyped(operator: str, *shapes: DataShape) -> None:
    unknown = untyped_columns(*shapes)
    if unknown:
        raise topology_error(
            operator, f"the types of {listed(unknown)} are unknown; specify them with schema="
        )


def make_source(
    topic: str,
    key: Serde,
    value: Serde,
    time: Callable[..., Any] | None,
    start: str,
    bad_records: str | DeadLetter,
    *,
    is_table: bool,
) -> Source:
    """Check the arguments of a source, and return it."""
    operator = "table" if is_table else "stream"
    if not topic or type(topic) is not str:
        raise topology_error(operator, f"{topic!r} is not a topic name")
    key, value = source_serde(operator, "key", key), source_serde(operator, "value", value)
    if start not in ("earliest", "latest"):
        raise topology_error(operator, f"start={start!r} is invalid; use earliest or latest")
    if bad_records not in BAD_RECORD_POLICIES and (
        is_table or not isinstance(bad_records, DeadLetter)
    ):
        valid = listed(BAD_RECORD_POLICIES) + ("" if is_table else ", st.DeadLetter(topic)")
        raise topology_error(
            operator, f"bad_records={bad_records!r} is invalid; valid values: {valid}"
        )
    traced_time = None if time is None else trace("time", time, key.shape, value.shape)
    if isinstance(traced_time, Traced) and getattr(traced_time.outcome, "type", "") not in (
        "timestamp",
        "bigint",
        None,
    ):
        raise topology_error(
            "time", "the function must return a timestamp, or milliseconds as a bigint"
        )
    return Source(
        key.shape, value.shape, topic, key, value, traced_time, start, bad_records, is_table
    )


def make_sink(
    node: Node,
    topic: str,
    key: Serde | None = None,
    value: Serde | None = None,
    *,
    is_internal: bool = False,
) -> Sink:
    if not topic or type(topic) is not str:
        raise topology_error("to", f"{topic!r} is not a topic name")
    if not isinstance(node, PythonAggregated | Suppressed):
        refuse_after_late_topic("to", node)
    key, value = sink_serde("key", key, node.key), sink_serde("value", value, node.value)
    for what, serde, shape in (("key", key, node.key), ("value", value, node.value)):
        if serde is not None and not _can_encode(serde, shape):
            raise topology_error("to", f"{what} {shape} cannot be written as {serde} {serde.shape}")
    with_window = node.is_windowed and key is None
    return Sink(
        node.key,
        node.value,
        node,
        topic,
        key or default_serde(node.key),
        value or default_serde(node.value),
        with_window,
        is_internal,
    )


def make_print_sink(node: Node, label: str) -> Printed:
    refuse_after_late_topic("print", node)
    serdes = default_serde(node.key), default_serde(node.value)
    return Printed(node.key, node.value, node, label, *serdes, has_window_in_key=False)


def _can_encode(serde: Serde, shape: DataShape) -> bool:
    if serde.name == "json":
        return set(serde.shape.names) <= set(shape.names)
    if shape.is_record:
        return False
    of_type = shape.columns[0].type
    return of_type is None or type_family(of_type) == type_family(serde.shape.columns[0].type)
