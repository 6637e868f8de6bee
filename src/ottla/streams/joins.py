"""What joins need: keys of the same type, and a value made of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.streams.errors import listed, refused
from ottla.streams.plan.expressions import Field
from ottla.streams.plan.nodes import Function, Node
from ottla.streams.plan.shapes import Column, Shape, family, record
from ottla.streams.plan.tracing import Traced, trace_pair


def how_of(operator: str, how: str, valid: tuple[str, ...]) -> str:
    if how not in valid:
        raise refused(operator, f"how={how!r}; there are {listed(valid)}")
    return how


def refuse_uncopartitioned(operator: str, left: Node, right: Node) -> None:
    """Spark brings equal keys together whatever partitions they are in; they must be comparable."""
    kinds = [[family(column.type) for column in each.key.columns] for each in (left, right)]
    if left.key.is_record != right.key.is_record or kinds[0] != kinds[1]:
        raise refused(
            operator, f"keys differ: {left.key} and {right.key}; use select_key on one of them"
        )


def joined_value(
    left: Shape, right: Shape, function: Callable[..., Any] | None
) -> tuple[Function, Shape | None]:
    """The function that makes the value, and its shape if it is known already."""
    if function is not None:
        return trace_pair("join", function, left, right), None
    if not (left.is_record and right.is_record):
        raise refused("join", "plain values have no columns to put together: give a function")
    twice = [name for name in left.names if name in right.names]
    if twice:
        raise refused("join", f"both sides have {listed(twice)}: give a function (left, right)")
    outcome = {
        column.name: Field(column.type, side, column.name)
        for side, shape in (("left", left), ("right", right))
        for column in shape.columns
    }
    columns = (Column(name, each.type) for name, each in outcome.items())
    return Traced(outcome), record(*columns)
