"""Functions that could not be traced, as Arrow UDFs that call Python once per record.

Records arrive as `Row`: `o.amount` and `o["amount"]` both work, as they do on columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from ottla.streams.compile.columns import Rows, outcome_column
from ottla.streams.plan.node import Function
from ottla.streams.plan.shapes import DataShape, type_of
from ottla.streams.plan.tracing import InPython

RESULT = "_made"
"""Column for the result of a function that fails softly: a struct of outcome and failure."""
_ARGUMENTS = {1: ("value",), 2: ("key", "value"), 3: ("key", "value", "timestamp")}


_is_real_time: ContextVar[bool] = ContextVar("is_real_time", default=False)
_rows: ContextVar[DataFrame | None] = ContextVar("rows", default=None)


@contextmanager
def real_time_calls(is_real_time: bool) -> Iterator[None]:
    """Compile Python functions so that they run row by row, as a real-time query needs them."""
    token = _is_real_time.set(is_real_time)
    try:
        yield
    finally:
        _is_real_time.reset(token)


@contextmanager
def functions_over(rows: DataFrame) -> Iterator[None]:
    """Name the rows that the columns of functions are for."""
    token = _rows.set(rows)
    try:
        yield
    finally:
        _rows.reset(token)


def _call(
    function: Callable[..., Any],
    name: str,
    returns: str,
    inputs: tuple[Column, ...],
    *,
    is_deterministic: bool = True,
) -> Column:
    if _is_real_time.get():
        from ottla.spark.realtime.functions import function_column as real_time_column

        rows = _rows.get()
        assert rows is not None, "operators of real-time applications name their rows"
        return real_time_column(rows, function, name, returns, inputs)
    made = f.udf(function, returns, useArrow=True)
    return (made if is_deterministic else made.asNondeterministic())(*inputs)


def function_column(
    function: Function,
    rows: Rows,
    returns: str,
    names: tuple[str, ...],
    *,
    skips: tuple[str, ...] = (),
) -> Column:
    """Return the column of a function's result.

    Args:
        function: The function, traced or in Python.
        rows: Columns of the function's arguments.
        returns: Type that a Python function returns.
        names: Columns of the dict that a Python function returns.
        skips: Arguments that, if all are null, make the result null without a call.
    """
    if not isinstance(function, InPython):
        made = outcome_column(function.outcome, rows)
        if not skips:
            return made
        is_present = reduce(or_, (rows[name].isNotNull() for name in skips))
        return f.when(is_present, made)
    names_of_arguments = ("left", "right") if "left" in rows else _ARGUMENTS[function.arity]
    adapted = _adapted(function.function, names, len(skips))
    inputs = (*(rows[name] for name in skips), *(rows[name] for name in names_of_arguments))
    return _udf_column(function, adapted, returns, inputs)


def _udf_column(
    function: InPython, adapted: Callable[..., Any], returns: str, inputs: tuple[Column, ...]
) -> Column:
    if not function.catches_errors:
        return _call(adapted, function.name, returns, inputs)
    attempt = Row("outcome", "failure")

    def attempted(*arguments: Any) -> Any:
        try:
            return attempt(adapted(*arguments), None)
        except Exception as error:
            return attempt(None, f"{type(error).__name__}: {error}")

    # Spark would evaluate a deterministic UDF twice, for the failure and for the outcome.
    both = f"struct<outcome: {returns}, failure: string>"
    return _call(attempted, function.name, both, inputs, is_deterministic=False)


def pair_column(function: Function, rows: Rows, key: DataShape, value: DataShape) -> Column:
    """Return a column of structs for a function that returns (key, value)."""
    if not isinstance(function, InPython):
        made = [outcome_column(each, rows) for each in function.outcome]
        return f.struct(made[0].alias("key"), made[1].alias("value"))
    return _pairs(function, rows, key, value, is_list=False)


def pairs_column(function: InPython, rows: Rows, key: DataShape, value: DataShape) -> Column:
    """Return a column of arrays of structs for a function that returns a list of (key, value)."""
    return _pairs(function, rows, key, value, is_list=True)


def _pairs(
    function: InPython, rows: Rows, key: DataShape, value: DataShape, *, is_list: bool
) -> Column:
    returns = f"struct<key: {type_of(key)}, value: {type_of(value)}>"
    key_row, value_row = row_converter(field_names(key)), row_converter(field_names(value))
    pair, user = Row("key", "value"), function.function

    def one(outcome: Any) -> Any:
        if not isinstance(outcome, tuple) or len(outcome) != 2:
            raise TypeError(f"the function must return (key, value), not {outcome!r}")
        return pair(key_row(outcome[0]), value_row(outcome[1]))

    def call(*arguments: Any) -> Any:
        outcome = user(*arguments)
        return [one(each) for each in outcome] if is_list else one(outcome)

    inputs = tuple(rows[name] for name in _ARGUMENTS[function.arity])
    return _udf_column(function, call, f"array<{returns}>" if is_list else returns, inputs)


def calling_column(function: InPython, rows: Rows) -> Column:
    """Return a column that is always true and calls the function for its side effects."""
    user = function.function

    def call(*arguments: Any) -> bool:
        user(*arguments)
        return True

    inputs = tuple(rows[name] for name in _ARGUMENTS[function.arity])
    if function.catches_errors:
        return _udf_column(function, call, "boolean", inputs)
    return _call(call, function.name, "boolean", inputs, is_deterministic=False)


def ddl(shape: DataShape) -> str:
    return ", ".join(f"`{each.name}` {each.type}" for each in shape.columns)


def field_names(shape: DataShape) -> tuple[str, ...]:
    return shape.names if shape.is_record else ()


def row_converter(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a function that turns a dict into a row with these columns.

    Other results are returned unchanged. A row keeps its type when Spark passes it to the next
    Python function.
    """
    made = Row(*names)

    def row(outcome: Any) -> Any:
        if isinstance(outcome, dict) and names:
            missing = [name for name in names if name not in outcome]
            if missing:
                raise KeyError(f"the function returned a dict without {', '.join(missing)}")
            return made(*(outcome[name] for name in names))
        return outcome

    return row


def _adapted(
    function: Callable[..., Any], names: tuple[str, ...], skips: int
) -> Callable[..., Any]:
    """Wrap a function so that its results become rows and null inputs are skipped.

    The first `skips` arguments are not passed on: if all of them are None, so is the result.
    """
    row = row_converter(names)

    def call(*arguments: Any) -> Any:
        if skips and all(each is None for each in arguments[:skips]):
            return None
        outcome = function(*arguments[skips:])
        if isinstance(outcome, list):
            return [row(each) for each in outcome]
        return row(outcome)

    return call
