"""Rules for aggregations, in Spark's own state and in Python state, and for suppression."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ottla.streams.aggregates import Aggregate
from ottla.streams.compile.rules import Inputs, Rules
from ottla.streams.compile.stateful import DELAY_KEY, run_program
from ottla.streams.operators.aggregations import Aggregated, PythonAggregated, Suppressed
from ottla.streams.operators.chains import first_state
from ottla.streams.plan.shapes import DataShape, type_of
from ottla.streams.state.limits import LatestPerKey, TimeLimited
from ottla.streams.state.program import Program
from ottla.streams.state.sliding import SlidingWindows
from ottla.streams.state.totals import Totals
from ottla.streams.state.windows import SessionWindows, TimeWindows
from ottla.streams.windows import Window

_AGGREGATES = {
    "sum": f.sum,
    "min": f.min,
    "max": f.max,
    "mean": f.mean,
    "collect_list": f.collect_list,
    "collect_set": f.collect_set,
    "count": f.count,
}
WINDOW_TYPE = "struct<start: timestamp, end: timestamp>"


def _with_key_and_value(rows: DataFrame) -> DataFrame:
    return rows.where(f.col("key").isNotNull() & f.col("value").isNotNull())


# -------------------------------------------------------------------------------- Spark's state


def _aggregated(node: Aggregated, inputs: Inputs) -> DataFrame:
    rows = _with_key_and_value(inputs.frame(node.parent))
    columns = [_aggregate(each, node.parent.value).alias(name) for name, each in node.aggregates]
    latest = f.max("timestamp").alias("_latest")
    names = [f.col(name) for name, _ in node.aggregates]
    if node.window is None:
        done = rows.groupBy("key").agg(*columns, latest)
        return done.select(
            "key", f.struct(*names).alias("value"), f.col("_latest").alias("timestamp")
        )
    done = (
        _watermarked(rows, node, node.window)
        .groupBy(_window(node.window).alias("_window"), "key")
        .agg(*columns, latest)
    )
    start, end = f.col("_window.start"), f.col("_window.end")
    if node.window.is_session:
        # In Kafka, a session ends with its last record; in Spark, one gap after it.
        end = end - f.lit(timedelta(milliseconds=node.window.size_ms))
    value = f.struct(start.alias("window_start"), end.alias("window_end"), *names)
    window = f.struct(start.alias("start"), end.alias("end"))
    return done.select(
        "key", value.alias("value"), f.col("_latest").alias("timestamp"), window.alias("window")
    )


def _watermarked(rows: DataFrame, node: Aggregated, window: Window) -> DataFrame:
    """Mark the time of the records as the column of the watermark.

    After another operator with state, the watermark is that operator's; Spark allows only one. The
    time of a join's result is the greater one of two watermark columns, so it is never late.
    """
    first = first_state(node.parent)
    delay_ms = None if first is None else first.watermark_delay_ms
    if delay_ms is None:
        return rows.withWatermark("timestamp", f"{window.grace_ms} milliseconds")
    marked = f.col("timestamp").alias("timestamp", metadata={DELAY_KEY: delay_ms})
    return rows.select("key", "value", marked)


def _window(window: Window) -> Column:
    size = f"{window.size_ms} milliseconds"
    if window.every_ms is None:
        return f.session_window("timestamp", size)
    return f.window("timestamp", size, f"{window.every_ms} milliseconds")


def _aggregate(aggregate: Aggregate, value: DataShape) -> Column:
    if aggregate.column is not None:
        of = f.col("value").getField(aggregate.column)
    elif value.is_record:
        return f.count(f.lit(1))
    else:
        of = f.col("value")
    return _AGGREGATES[aggregate.function](of)


# ------------------------------------------------------------------------------- Python's state


def _python_aggregated(node: PythonAggregated, inputs: Inputs) -> DataFrame:
    return _in_python(node, inputs, is_final=False)


def _in_python(
    node: PythonAggregated, inputs: Inputs, *, is_final: bool, limit_ms: int | None = None
) -> DataFrame:
    schema = f"key {type_of(node.key)}, value {type_of(node.outcome)}, timestamp timestamp"
    if node.window is not None:
        schema += f", window {WINDOW_TYPE}"
    if node.late is not None:
        schema += f", late {type_of(node.parent.value)}"
    program = _program(node, is_final)
    if limit_ms is not None:
        program = TimeLimited(program, limit_ms)
    done = run_program(program, [_with_key_and_value(inputs.frame(node.parent))], schema)
    added = [name for name in node.value.names if name not in node.outcome.names]
    if not added:
        return done
    bounds = {
        "window_start": f.col("window").getField("start"),
        "window_end": f.col("window").getField("end"),
    }
    value = f.col("value")
    whole = f.struct(
        *(bounds[name].alias(name) for name in added),
        *(value.getField(name).alias(name) for name in node.outcome.names),
    )
    return done.withColumn("value", f.when(value.isNotNull(), whole))


def _program(node: PythonAggregated, is_final: bool) -> Program:
    window, fold = node.window, node.fold
    if window is None:
        return Totals(fold)
    emits_late = node.late is not None
    if window.is_sliding:
        return SlidingWindows(fold, window.size_ms, window.grace_ms, is_final, emits_late)
    if window.every_ms is None:
        return SessionWindows(fold, window.size_ms, window.grace_ms, is_final, emits_late)
    return TimeWindows(fold, window.size_ms, window.every_ms, window.grace_ms, is_final, emits_late)


# ---------------------------------------------------------------------------------- suppression


def _suppressed(node: Suppressed, inputs: Inputs) -> DataFrame:
    parent, limit_ms = node.parent, node.limit_ms
    if isinstance(parent, PythonAggregated):
        return _in_python(parent, inputs, is_final=limit_ms is None, limit_ms=limit_ms)
    rows = inputs.frame(parent)
    if limit_ms is None:
        return rows
    schema = f"key {type_of(node.key)}, value {type_of(node.value)}, timestamp timestamp"
    return run_program(
        TimeLimited(LatestPerKey(), limit_ms), [rows.where(f.col("key").isNotNull())], schema
    )


RULES: Rules = {
    Aggregated: _aggregated,
    PythonAggregated: _python_aggregated,
    Suppressed: _suppressed,
}
