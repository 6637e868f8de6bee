"""Checks that operators make when a topology is built, and the shapes of their results."""

from __future__ import annotations

from dataclasses import replace

from ottla.streams.aggregates import Aggregate
from ottla.streams.errors import TopologyError, listed, refused
from ottla.streams.plan.nodes import (
    Aggregated,
    Changing,
    Deduplicated,
    Folded,
    ForeignJoin,
    Function,
    Node,
    OneParent,
    Printed,
    Processed,
    Sink,
    StreamJoin,
    Subscribing,
    Suppressed,
    TableFolded,
    TablesJoin,
    ancestors,
)
from ottla.streams.plan.shapes import (
    Column,
    Shape,
    family,
    parse_record,
    parse_type,
    plain,
    record,
    untyped,
)
from ottla.streams.plan.tracing import InPython
from ottla.streams.serdes import Serde, natural, sink_serde

WITH_STATE: dict[type[Node], str] = {
    Aggregated: "aggregated",
    Folded: "aggregated",
    Changing: "aggregated",
    TableFolded: "aggregated",
    StreamJoin: "joined",
    TablesJoin: "joined",
    ForeignJoin: "joined",
    Subscribing: "joined",
    Processed: "processed",
    Deduplicated: "deduplicated",
}
"""Stateful operators and the word for their results. Spark allows one of them in a query."""


def state_of(node: Node) -> str | None:
    """Return the word for the results of a stateful operator, or None for a stateless one."""
    if isinstance(node, Suppressed) and node.limit_ms is not None:
        # Directly after an aggregation, changes wait in the state of the aggregation.
        return None if isinstance(node.parent, Folded) else "suppressed"
    return WITH_STATE.get(type(node))


def shape_of(operator: str, function: Function, schema: str | None) -> Shape:
    """Return the shape of a function's result."""
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
    return _outcome_shape(operator, outcome)


def pair_shapes(
    operator: str, function: Function, schema: str | None, key_schema: str | None
) -> tuple[Shape, Shape]:
    """Return the shapes of the key and the value that a function returns as (key, value)."""
    if isinstance(function, InPython):
        if schema is None or key_schema is None:
            raise refused(
                operator,
                f"the function runs in Python ({function.reason}), so say what it returns: "
                'key_schema="string", schema="item string, total double"',
            )
        return parse_schema(key_schema), parse_schema(schema)
    outcome = function.outcome
    if not isinstance(outcome, tuple) or len(outcome) != 2:
        raise refused(operator, "the function must return (key, value)")
    return _outcome_shape(operator, outcome[0]), _outcome_shape(operator, outcome[1])


def _outcome_shape(operator: str, outcome: object) -> Shape:
    if isinstance(outcome, dict):
        if not outcome:
            raise refused(operator, "the function returns an empty dict")
        return record(*(Column(name, each.type) for name, each in outcome.items()))
    of_type = getattr(outcome, "type", None)
    if of_type == "void":
        raise refused(operator, "the function returns None")
    return plain(of_type)


def parse_schema(schema: str) -> Shape:
    """Parse a schema such as `"double"` or `"item string, total double"`."""
    try:
        return plain(parse_type(schema))
    except TopologyError:
        return parse_record(schema)


def aggregate_type(name: str, aggregate: Aggregate, value: Shape) -> str | None:
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


def has_state(node: Node) -> bool:
    return any(state_of(each) is not None for each in ancestors(node))


def failing_softly(node: Node) -> Node:
    """Return the operator with a Python function that reports its exceptions instead of raising.

    Downstream of a stateful operator it is returned unchanged: the dead-letter query evaluates the
    function a second time, and stateful results can differ between two queries.
    """
    function = getattr(node, "function", None)
    if not isinstance(function, InPython) or not isinstance(node, OneParent) or has_state(node):
        return node
    return replace(node, function=replace(function, fails_softly=True))  # type: ignore[call-arg]


def refuse_second_state(operator: str, *nodes: Node) -> None:
    """Refuse a stateful operator if one of its inputs already has state."""
    for each in (above for node in nodes for above in ancestors(node)):
        what = state_of(each)
        if what is not None:
            raise refused(
                operator,
                f"its input is {what} already; put through(topic) between the two, which makes "
                "them queries of their own",
            )


def refuse_two_states(operator: str, node: Node) -> None:
    """Refuse an operator that runs in the same query as its inputs if several have state."""
    found = [what for each in ancestors(node) if (what := state_of(each)) is not None]
    if len(found) > 1:
        raise refused(
            operator,
            f"both are {' and '.join(found)}, and a query has one state: put through(topic) behind "
            "one of them",
        )


def refuse_late_elsewhere(operator: str, node: Node) -> None:
    """Refuse an operator between windows with a late topic and their sink.

    Late records leave the query through the same sink as the windows' results.
    """
    if any(isinstance(each, Folded) and each.late is not None for each in ancestors(node)):
        raise refused(
            operator,
            "late records go to a topic of their own: write the table with to(topic) first, or "
            "go on behind through(topic)",
        )


def refuse_untyped(operator: str, *shapes: Shape) -> None:
    unknown = untyped(*shapes)
    if unknown:
        raise refused(operator, f"the types of {listed(unknown)} are not known: use schema=")


def sink(
    node: Node,
    topic: str,
    key: Serde | None = None,
    value: Serde | None = None,
    *,
    is_internal: bool = False,
) -> Sink:
    if not topic or type(topic) is not str:
        raise refused("to", f"{topic!r} is no topic")
    if not isinstance(node, Folded | Suppressed):
        refuse_late_elsewhere("to", node)
    key, value = sink_serde("key", key, node.key), sink_serde("value", value, node.value)
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
        is_internal,
    )


def printed(node: Node, label: str) -> Printed:
    refuse_late_elsewhere("print", node)
    serdes = natural(node.key), natural(node.value)
    return Printed(node.key, node.value, node, label, *serdes, has_window_in_key=False)


def _fits(serde: Serde, shape: Shape) -> bool:
    if serde.name == "json":
        return set(serde.shape.names) <= set(shape.names)
    if shape.is_record:
        return False
    of_type = shape.columns[0].type
    return of_type is None or family(of_type) == family(serde.shape.columns[0].type)
