"""Rules for aggregations of a table by another key."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ottla.streams.compile.python_functions import field_names, function_column
from ottla.streams.compile.rules import Inputs, Rules
from ottla.streams.compile.stateful import run_program
from ottla.streams.operators.table_aggregations import Changing, TableAggregated
from ottla.streams.plan.shapes import type_of
from ottla.streams.state.totals import Changes, TableTotals


def _changing(node: Changing, inputs: Inputs) -> DataFrame:
    schema = f"key {type_of(node.key)}, value {type_of(node.value)}, timestamp timestamp"
    rows = inputs.frame(node.parent)
    return run_program(Changes(), [rows.where(f.col("key").isNotNull())], schema)


def _table_aggregated(node: TableAggregated, inputs: Inputs) -> DataFrame:
    rows = inputs.frame(node.parent).where(f.col("value").isNotNull())
    steps = (
        f.struct(f.lit(name == "now").alias("is_added"), f.col("value").getField(name).alias("of"))
        for name in ("before", "now")
    )
    rows = rows.select("key", f.explode(f.array(*steps)).alias("step"), "timestamp")
    rows = rows.where(f.col("step.of").isNotNull())
    # The function sees the table's key; its result becomes the key of the grouped table.
    seen = {"key": f.col("key"), "value": f.col("step.of"), "timestamp": f.col("timestamp")}
    key = function_column(node.function, seen, type_of(node.key), field_names(node.key))
    rows = rows.select(key.alias("key"), f.col("step").alias("value"), "timestamp")
    schema = f"key {type_of(node.key)}, value {type_of(node.value)}, timestamp timestamp"
    program = TableTotals(node.fold, node.subtract)
    return run_program(program, [rows.where(f.col("key").isNotNull())], schema)


RULES: Rules = {Changing: _changing, TableAggregated: _table_aggregated}
