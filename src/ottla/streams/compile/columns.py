"""Translation of traced expressions to Spark columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from operator import add, and_, eq, ge, gt, le, lt, mul, ne, or_, sub, truediv
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as f

from ottla.streams.plan.expressions import Call, ColumnReference, Constant, EventTime, Expression

Rows = Mapping[str, Column]
"""Columns of `key`, `value`, `timestamp`, `left` and `right`, by these names."""


class _ByName(dict[str, Column]):
    """Columns of the rows between nodes, created on access because columns need a session."""

    def __missing__(self, name: str) -> Column:
        return f.col(name)

    def __contains__(self, name: object) -> bool:
        return name in ("key", "value", "timestamp")


ROWS: Rows = _ByName()

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "!=": ne,
    "and": and_, "or": or_, "+": add, "-": sub, "*": mul, "/": truediv,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Column]] = {
    "not": lambda one: ~one,
    "negative": f.negative,
    "abs": f.abs,
    "pmod": f.pmod,
    "concat": f.concat,
    "upper": f.upper,
    "lower": f.lower,
    "startswith": f.startswith,
    "endswith": f.endswith,
    "isnull": f.isnull,
    "coalesce": f.coalesce,
}


def column_of(expression: Expression, rows: Rows) -> Column:
    match expression:
        case ColumnReference(origin=of, name=name):
            return rows[of] if name is None else rows[of].getField(name)
        case EventTime():
            return rows["timestamp"]
        case Constant(value=value):
            return f.lit(value)
        case Call(function="split", arguments=(text, Constant(value=separator))):
            return f.split(column_of(text, rows), re.escape(str(separator)), -1)
        case Call(function=function, arguments=arguments):
            columns = [column_of(each, rows) for each in arguments]
            if function in _OPERATORS:
                return reduce(_OPERATORS[function], columns)
            return _FUNCTIONS[function](*columns)
    raise AssertionError(f"unknown expression {type(expression).__name__}")


def outcome_column(outcome: Any, rows: Rows) -> Column:
    """Return the column of a traced function's result. A dict becomes a struct."""
    if isinstance(outcome, dict):
        return f.struct(*(column_of(each, rows).alias(name) for name, each in outcome.items()))
    return column_of(outcome, rows)
