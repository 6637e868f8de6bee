"""Checks that several operators make when they are added to a topology."""

from __future__ import annotations

from ottla.streams.errors import listed, topology_error
from ottla.streams.plan.node import Function, Node, ancestors
from ottla.streams.plan.shapes import (
    Column,
    DataShape,
    parse_shape,
    plain_shape,
    record_shape,
    untyped_columns,
)
from ottla.streams.plan.tracing import InPython


def shape_of(operator: str, function: Function, schema: str | None) -> DataShape:
    """Return the shape of a function's result."""
    if isinstance(function, InPython):
        if schema is None:
            raise topology_error(
                operator,
                f"the function runs in Python ({function.reason}), so specify what it returns: "
                'schema="double" or schema="item string, total double"',
            )
        return parse_shape(schema)
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
        return parse_shape(key_schema), parse_shape(schema)
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


def refuse_untyped(operator: str, *shapes: DataShape) -> None:
    unknown = untyped_columns(*shapes)
    if unknown:
        raise topology_error(
            operator, f"the types of {listed(unknown)} are unknown; specify them with schema="
        )


def refuse_second_state(operator: str, *nodes: Node) -> None:
    """Refuse a stateful operator if one of its inputs already has state."""
    for each in (above for node in nodes for above in ancestors(node)):
        if each.state_word is not None:
            raise topology_error(
                operator,
                f"its input is already {each.state_word}; write it with to(topic) and continue "
                "from app.stream(topic) or app.table(topic), so that the two operators run as "
                "separate queries",
            )


def refuse_two_states(operator: str, node: Node) -> None:
    """Refuse an operator that runs in the same query as its inputs if several have state."""
    found = [each.state_word for each in ancestors(node) if each.state_word is not None]
    if len(found) > 1:
        raise topology_error(
            operator,
            f"several inputs have state ({', '.join(found)}), but a query can have only one; "
            "write one of them with to(topic) and continue from app.stream(topic)",
        )


def refuse_after_late_topic(operator: str, node: Node) -> None:
    """Refuse an operator between windows with a late topic and their sink.

    Late records leave the query through the same sink as the windows' results.
    """
    if any(each.late_topic is not None for each in ancestors(node)):
        raise topology_error(
            operator,
            "late records go to a topic of their own; write the table with to(topic) first, and "
            "continue from app.table(topic)",
        )
