"""Rules for operators that handle each record on its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ottla.base.errors import UserError
from ottla.streams.compile.codecs import encode
from ottla.streams.compile.columns import ROWS
from ottla.streams.compile.python_functions import (
    RESULT,
    calling_column,
    field_names,
    function_column,
    functions_over,
    pair_column,
    pairs_column,
)
from ottla.streams.compile.rules import Inputs, Rule, Rules
from ottla.streams.compile.topics import headers_of
from ottla.streams.operators.stateless import (
    Failures,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    Merge,
    Peek,
    RecordOperator,
    Repartitioned,
    SelectKey,
    TableFilter,
    Transformed,
)
from ottla.streams.plan.shapes import type_of
from ottla.streams.plan.tracing import InPython
from ottla.streams.serdes import default_serde

ResultColumn = Callable[[Any], Column]
"""Column that holds the result of an operator's function."""


def _predicate(node: Filter) -> Column:
    return function_column(node.function, ROWS, "boolean", ())


def _filtered(node: Filter, rows: DataFrame, result: Column) -> DataFrame:
    return rows.where(_passes(result, node.negated))


def _table_predicate(node: TableFilter) -> Column:
    return function_column(node.function, ROWS, "boolean", (), skips=("value",))


def _table_filtered(node: TableFilter, rows: DataFrame, result: Column) -> DataFrame:
    return rows.withColumn("value", f.when(_passes(result, node.negated), f.col("value")))


def _passes(condition: Column, negated: bool) -> Column:
    is_true = f.coalesce(condition, f.lit(False))
    return ~is_true if negated else is_true


def _mapped_value(node: MapValues) -> Column:
    names, skips = field_names(node.value), ("value",) if node.keeps_null else ()
    return function_column(node.function, ROWS, type_of(node.value), names, skips=skips)


def _with_value(node: MapValues, rows: DataFrame, result: Column) -> DataFrame:
    return rows.withColumn("value", result)


def _mapped_values(node: FlatMapValues) -> Column:
    many = f"array<{type_of(node.value)}>"
    return function_column(node.function, ROWS, many, field_names(node.value))


def _with_values(node: FlatMapValues, rows: DataFrame, result: Column) -> DataFrame:
    return rows.withColumn("value", f.explode(result))


def _mapped_pair(node: Map) -> Column:
    return pair_column(node.function, ROWS, node.key, node.value)


def _with_pair(node: Map, rows: DataFrame, result: Column) -> DataFrame:
    return _from_pair(rows.withColumn("_pair", result))


def _mapped_pairs(node: FlatMap) -> Column:
    return pairs_column(node.function, ROWS, node.key, node.value)


def _with_pairs(node: FlatMap, rows: DataFrame, result: Column) -> DataFrame:
    return _from_pair(rows.withColumn("_pair", f.explode(result)))


def _from_pair(rows: DataFrame) -> DataFrame:
    return rows.select("_pair.key", "_pair.value", "timestamp")


def _selected_key(node: SelectKey) -> Column:
    return function_column(node.function, ROWS, type_of(node.key), field_names(node.key))


def _with_key(node: SelectKey, rows: DataFrame, result: Column) -> DataFrame:
    return rows.withColumn("key", result).drop("window")


def _called(node: Peek) -> Column:
    return calling_column(node.function, ROWS)


def _peeked(node: Peek, rows: DataFrame, result: Column) -> DataFrame:
    return rows.where(result)


_RECORD_OPERATORS: dict[
    type[RecordOperator], tuple[ResultColumn, Callable[[Any, DataFrame, Column], DataFrame]]
] = {
    Filter: (_predicate, _filtered),
    TableFilter: (_table_predicate, _table_filtered),
    MapValues: (_mapped_value, _with_value),
    FlatMapValues: (_mapped_values, _with_values),
    Map: (_mapped_pair, _with_pair),
    FlatMap: (_mapped_pairs, _with_pairs),
    SelectKey: (_selected_key, _with_key),
    Peek: (_called, _peeked),
}
"""Result of each operator's function, and the operator's rows from that result."""


def _record_operator(node: RecordOperator, inputs: Inputs) -> DataFrame:
    result_of, applied = _RECORD_OPERATORS[type(node)]
    rows = inputs.frame(node.parent)
    with functions_over(rows):
        result = result_of(node)
    if not node.catches_errors:
        return applied(node, rows, result)
    attempted = rows.withColumn(RESULT, result).where(f.col(RESULT).getField("failure").isNull())
    return applied(node, attempted, f.col(RESULT).getField("outcome")).drop(RESULT)


def _failures(node: Failures, inputs: Inputs) -> DataFrame:
    """Return the records, as bytes, on which the function of any operator raised."""
    parts = []
    for each in node.operators:
        assert isinstance(each.function, InPython), "a traced function does not raise"
        parent, (result_of, _) = each.parent, _RECORD_OPERATORS[type(each)]
        rows = inputs.frame(parent)
        with functions_over(rows):
            rows = rows.withColumn(RESULT, result_of(each))
        failure = f.col(RESULT).getField("failure")
        name = f.lit(each.function.name)
        headers = headers_of({"ottla.error.reason": failure, "ottla.function": name})
        parts.append(
            rows.where(failure.isNotNull()).select(
                encode(default_serde(parent.key), f.col("key"), parent.key).alias("key"),
                encode(default_serde(parent.value), f.col("value"), parent.value).alias("value"),
                "timestamp",
                headers.alias("headers"),
            )
        )
    return reduce(DataFrame.unionByName, parts)


def _merged(node: Merge, inputs: Inputs) -> DataFrame:
    return inputs.frame(node.left).unionByName(inputs.frame(node.right))


def _repartitioned(node: Repartitioned, inputs: Inputs) -> DataFrame:
    return inputs.frame(node.parent).repartition(node.partitions, "key")


def _transformed(node: Transformed, inputs: Inputs) -> DataFrame:
    made = node.function.function(inputs.frame(node.parent))
    names = getattr(made, "columns", [])
    missing = [name for name in ("key", "value", "timestamp") if name not in names]
    if missing:
        raise UserError(
            f"transform_df: the function {node.function.name} must return a DataFrame with the "
            f"columns key, value, timestamp; {', '.join(missing)} is missing"
        )
    key, value = (
        f.col(name).cast(type_of(shape)).alias(name)
        for name, shape in (("key", node.key), ("value", node.value))
    )
    kept = ["window"] if "window" in names else []
    return made.select(key, value, "timestamp", *kept)  # type: ignore[no-any-return]


_record_rule: Rule = _record_operator
RULES: Rules = {
    **dict.fromkeys(_RECORD_OPERATORS, _record_rule),
    Failures: _failures,
    Merge: _merged,
    Repartitioned: _repartitioned,
    Transformed: _transformed,
}
