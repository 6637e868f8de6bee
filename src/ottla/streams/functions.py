"""Helpers for functions over records, for columns and plain values alike."""

from __future__ import annotations

from typing import Any

from ottla.streams.plan.expressions import Call, Expression, NotTraceable, constant
from ottla.streams.plan.shapes import type_family


def is_null(value: Any) -> Any:
    """Return whether a value is null.

    Args:
        value: A column or a plain value.
    """
    if isinstance(value, Expression):
        return Call("boolean", "isnull", (value,))
    return value is None


def coalesce(*values: Any) -> Any:
    """Return the first value that is not null, or null.

    Args:
        values: Columns or plain values of the same type.
    """
    if not any(isinstance(each, Expression) for each in values):
        return next((each for each in values if each is not None), None)
    expressions = tuple(map(constant, values))
    if len({type_family(each.type) for each in expressions}) != 1:
        raise NotTraceable("coalesce() of different types")
    return Call(
        expressions[0].type if len({each.type for each in expressions}) == 1 else None,
        "coalesce",
        expressions,
    )
