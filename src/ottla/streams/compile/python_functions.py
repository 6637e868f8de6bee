"""Functions that could not be traced, as UDFs over Arrow batches: one call per record, in Python.

Records arrive as `Row`: `o.amount` and `o["amount"]` both work, as they do on columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as f

from ottla.streams.compile.columns import Rows, outcome_column
from ottla.streams.plan.nodes import Function
from ottla.streams.plan.shapes import Shape
from ottla.streams.plan.tracing import InPython

_TAKEN = {1: ("value",), 2: ("key", "value"), 3: ("key", "value", "timestamp")}


def function_column(function: Function, rows: Rows, returns: str, names: tuple[str, ...]) -> Column:
    """`returns` is the type that a Python function gives, `names` the columns of its dict."""
    if not isinstance(function, InPython):
        return outcome_column(function.outcome, rows)
    taken = ("left", "right") if "left" in rows else _TAKEN[function.arity]
    call = f.udf(_adapted(function.function, names), returns, useArrow=True)
    return call(*(rows[name] for name in taken))


def ddl_type(shape: Shape) -> str:
    if not shape.is_record:
        return shape.columns[0].type or "string"
    return f"struct<{', '.join(f'`{each.name}`: {each.type}' for each in shape.columns)}>"


def ddl(shape: Shape) -> str:
    return ", ".join(f"`{each.name}` {each.type}" for each in shape.columns)


def field_names(shape: Shape) -> tuple[str, ...]:
    return shape.names if shape.is_record else ()


def each_of(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """A dict to a row, by the columns' names; other outcomes stay as they are. A row, since Spark
    hands it to the next Python function as it is."""
    made = Row(*names)

    def row(outcome: Any) -> Any:
        if isinstance(outcome, dict) and names:
            missing = [name for name in names if name not in outcome]
            if missing:
                raise KeyError(f"the function returned no {', '.join(missing)}")
            return made(*(outcome[name] for name in names))
        return outcome

    return row


def _adapted(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    row = each_of(names)

    def call(*arguments: Any) -> Any:
        outcome = function(*arguments)
        if isinstance(outcome, list):
            return [row(each) for each in outcome]
        return row(outcome)

    return call
