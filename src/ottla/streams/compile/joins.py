"""Rules for joins."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ottla.streams.compile.columns import ROWS
from ottla.streams.compile.python_functions import field_names, function_column
from ottla.streams.compile.rules import Inputs, Rules
from ottla.streams.compile.stateful import run_program
from ottla.streams.compile.topics import latest
from ottla.streams.operators.joins import (
    ForeignJoin,
    Join,
    Lookup,
    StreamJoin,
    Subscribing,
    TableJoin,
    TablesJoin,
)
from ottla.streams.plan.shapes import type_of
from ottla.streams.state.foreign import ENTER, LEAVE, Subscribed, Subscriptions
from ottla.streams.state.tables import TablesJoined

_SPARK_JOINS = {"inner": "inner", "left": "left", "outer": "full_outer"}


def _stream_join(node: StreamJoin, inputs: Inputs) -> DataFrame:
    """Join two streams.

    Records without a value join nothing, as in Kafka Streams. A record is late when stream time has
    passed its join window by the grace period. Spark compares the watermark with the record's own
    time, so the watermark lags by the window and the grace period together.
    """
    within = f.lit(timedelta(milliseconds=node.within_ms))
    sides = []
    for name, side in (("left", node.left), ("right", node.right)):
        rows = inputs.frame(side)
        watermarked = rows.where(f.col("value").isNotNull()).withWatermark(
            "timestamp", f"{node.watermark_delay_ms} milliseconds"
        )
        sides.append(
            watermarked.select(
                f.col("key").alias(f"{name}_key"),
                f.col("value").alias(name),
                f.col("timestamp").alias(f"{name}_time"),
            )
        )
    condition = (
        (f.col("left_key") == f.col("right_key"))
        & (f.col("right_time") >= f.col("left_time") - within)
        & (f.col("right_time") <= f.col("left_time") + within)
    )
    joined = sides[0].join(sides[1], condition, _SPARK_JOINS[node.how])
    return joined.select(
        f.coalesce("left_key", "right_key").alias("key"),
        _joined(node, f.col("left"), f.col("right")).alias("value"),
        f.greatest("left_time", "right_time").alias("timestamp"),
    )


def _table_join(node: TableJoin | Lookup, inputs: Inputs) -> DataFrame:
    """Join a stream with the current rows of a table."""
    rows = inputs.frame(node.left).where(f.col("value").isNotNull())
    table = latest(node.right, inputs.topics)
    if isinstance(node, Lookup):
        by = function_column(node.on, ROWS, type_of(node.on_shape), field_names(node.on_shape))
        rows, table = rows.withColumn("_on", by), f.broadcast(table)
    else:
        rows = rows.withColumn("_on", f.col("key"))
    rows = rows.withColumnRenamed("value", "left")
    joined = rows.join(table, rows["_on"] == table["_key"], _SPARK_JOINS[node.how])
    kept = [name for name in ("timestamp", "window") if name in rows.columns]
    value = _joined(node, f.col("left"), f.col("right"))
    return joined.select("key", value.alias("value"), *kept)


def _tables_join(node: TablesJoin, inputs: Inputs) -> DataFrame:
    key = type_of(node.key)
    sides = [
        inputs.frame(side).where(f.col("key").isNotNull()).withColumn("key", f.col("key").cast(key))
        for side in (node.left, node.right)
    ]
    done = run_program(TablesJoined(node.how), sides, _pairs_schema(node))
    return _with_join_function(node, done)


def _subscribing(node: Subscribing, inputs: Inputs) -> DataFrame:
    foreign = type_of(node.foreign_key)
    names = field_names(node.foreign_key)
    now = function_column(node.function, ROWS, foreign, names, skips=("value",))
    pair = f.struct(now.cast(foreign).alias("now"), f.col("value").alias("value"))
    rows = inputs.frame(node.parent).where(f.col("key").isNotNull())
    rows = rows.withColumn("value", f.when(f.col("value").isNotNull(), pair))
    schema = f"key {type_of(node.key)}, value {type_of(node.value)}, timestamp timestamp"
    return run_program(Subscriptions(), [rows], schema)


def _foreign_join(node: ForeignJoin, inputs: Inputs) -> DataFrame:
    subscriptions, right = inputs.frame(node.left), inputs.frame(node.right)
    foreign = type_of(node.right.key)
    before, now, left = (f.col("value").getField(name) for name in ("before", "now", "value"))
    is_left_join = f.lit(node.how == "left")
    has_value, has_key = left.isNotNull(), now.isNotNull() | is_left_join
    is_other = ~before.eqNullSafe(now)

    def row(key: Column, action: str, has_moved: Column, value: Column) -> Column:
        names = (
            f.lit(action).alias("action"),
            f.col("key").alias("left_key"),
            has_moved.alias("has_moved"),
            value.alias("value"),
        )
        return f.struct(key.cast(foreign).alias("key"), f.struct(*names).alias("value"))

    nothing = f.lit(None).cast(type_of(node.left_value))
    leave = row(before, LEAVE, has_value & has_key, nothing)
    enter = row(now, ENTER, before.isNotNull() & is_other, left)
    leaves = (is_other | ~has_value) & (before.isNotNull() | is_left_join)
    steps = f.array(f.when(leaves, leave), f.when(has_value & has_key, enter))
    rows = subscriptions.where(f.col("value").isNotNull()).select(
        f.explode(f.array_compact(steps)).alias("step"), "timestamp"
    )
    rows = rows.select("step.key", "step.value", "timestamp")
    done = run_program(
        Subscribed(node.how), [rows, right.where(f.col("key").isNotNull())], _pairs_schema(node)
    )
    return _with_join_function(node, done)


def _pairs_schema(node: TablesJoin | ForeignJoin) -> str:
    left = node.left_value if isinstance(node, ForeignJoin) else node.left.value
    value = f"struct<left: {type_of(left)}, right: {type_of(node.right.value)}>"
    return f"key {type_of(node.key)}, value {value}, timestamp timestamp"


def _with_join_function(node: TablesJoin | ForeignJoin, rows: DataFrame) -> DataFrame:
    sides = (f.col("value").getField(name) for name in ("left", "right"))
    return rows.withColumn("value", _joined(node, *sides))


def _joined(node: Join, left: Column, right: Column) -> Column:
    """Return the result of the join function, or null if both sides are null."""
    rows = {"left": left, "right": right}
    return function_column(
        node.function, rows, type_of(node.value), field_names(node.value), skips=("left", "right")
    )


RULES: Rules = {
    StreamJoin: _stream_join,
    TableJoin: _table_join,
    Lookup: _table_join,
    TablesJoin: _tables_join,
    Subscribing: _subscribing,
    ForeignJoin: _foreign_join,
}
