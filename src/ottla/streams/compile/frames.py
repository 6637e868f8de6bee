"""Nodes -> DataFrames.

`Topics` says where a source's rows come from: topics of a cluster, or a test's records. Their
columns are those of `format("ottla")`: key, value, timestamp, and offset for tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ottla.streams.aggregates import Aggregate
from ottla.streams.compile.codecs import decode, encode, windowed_key
from ottla.streams.compile.columns import Rows
from ottla.streams.compile.python_functions import ddl_type, field_names, function_column
from ottla.streams.plan.nodes import (
    Aggregated,
    BadRecords,
    Deduplicated,
    Filter,
    FlatMapValues,
    MapValues,
    Merge,
    Node,
    SelectKey,
    Sink,
    Source,
    StreamJoin,
    Suppressed,
    TableJoin,
    ancestors,
)
from ottla.streams.plan.shapes import Shape
from ottla.streams.windows import Window

_SPARK_JOINS = {"inner": "inner", "left": "left", "outer": "full_outer"}
_AGGREGATES = {
    "sum": f.sum,
    "min": f.min,
    "max": f.max,
    "mean": f.mean,
    "collect_list": f.collect_list,
    "collect_set": f.collect_set,
    "count": f.count,
}


class Topics(Protocol):
    def stream(self, source: Source, *, with_origin: bool = False) -> DataFrame:
        """Rows as they come; with topic, partition and offset if asked for."""

    def table(self, source: Source) -> DataFrame:
        """All rows there are, anew in every micro-batch."""


def sink_frame(sink: Sink, topics: Topics) -> DataFrame:
    """Rows for a topic: key, value, timestamp."""
    rows = frame(sink.parent, topics)
    key = encode(sink.key_serde, f.col("key"), sink.key)
    if sink.has_window_in_key:
        key = windowed_key(key, f.col("window"), is_session=has_sessions(sink))
    value = encode(sink.value_serde, f.col("value"), sink.value)
    more = [name for name in ("headers",) if name in rows.columns]
    return rows.select(key.alias("key"), value.alias("value"), "timestamp", *more)


def frame(node: Node, topics: Topics) -> DataFrame:  # noqa: C901 - one case per operator
    match node:
        case Source():
            return _source(node, topics.stream(node))
        case BadRecords(source=source):
            return _bad_records(source, topics.stream(source, with_origin=True))
        case Deduplicated(parent=parent, function=function, within_ms=within_ms):
            identity = function_column(function, _ROWS, "string", ())
            rows = frame(parent, topics).withWatermark("timestamp", f"{within_ms} milliseconds")
            marked = rows.withColumn("_identity", identity)
            return marked.dropDuplicatesWithinWatermark(["_identity"]).drop("_identity")
        case Filter(parent=parent, function=function, negated=negated):
            condition = function_column(function, _ROWS, "boolean", ())
            is_true = f.coalesce(condition, f.lit(False))
            return frame(parent, topics).where(~is_true if negated else is_true)
        case MapValues(parent=parent, function=function):
            value = function_column(function, _ROWS, ddl_type(node.value), field_names(node.value))
            return frame(parent, topics).withColumn("value", value)
        case FlatMapValues(parent=parent, function=function):
            many = f"array<{ddl_type(node.value)}>"
            values = function_column(function, _ROWS, many, field_names(node.value))
            return frame(parent, topics).withColumn("value", f.explode(values))
        case SelectKey(parent=parent, function=function):
            key = function_column(function, _ROWS, ddl_type(node.key), field_names(node.key))
            return frame(parent, topics).withColumn("key", key).drop("window")
        case Merge(left=left, right=right):
            return frame(left, topics).unionByName(frame(right, topics))
        case Aggregated():
            return _aggregated(node, frame(node.parent, topics))
        case Suppressed(parent=parent):
            return frame(parent, topics)
        case StreamJoin():
            return _stream_join(node, frame(node.left, topics), frame(node.right, topics))
        case TableJoin():
            return _table_join(node, frame(node.left, topics), topics)
    raise AssertionError(f"unknown node {type(node).__name__}")


class _ByName(dict[str, Column]):
    """Columns of the rows between nodes. Made when asked for: columns need a session."""

    def __missing__(self, name: str) -> Column:
        return f.col(name)

    def __contains__(self, name: object) -> bool:
        return name in ("key", "value", "timestamp")


_ROWS: Rows = _ByName()


def _source(source: Source, rows: DataFrame) -> DataFrame:
    stops = source.bad_records == "stop"
    key, bad_key = decode(source.key_serde, f.col("key"), stops=stops)
    value, bad_value = decode(source.value_serde, f.col("value"), stops=stops)
    if not stops:
        # A tombstone is not bad: its condition is null.
        for is_bad in (bad_key, bad_value):
            rows = rows.where(~f.coalesce(is_bad, f.lit(False)))
    more = [name for name in ("offset",) if name in rows.columns]
    rows = rows.select(key.alias("key"), value.alias("value"), "timestamp", *more)
    if source.time is None:
        return rows
    time = function_column(source.time, _ROWS, "timestamp", ())
    kind = rows.select(time.alias("time")).schema["time"].dataType.simpleString()
    return rows.withColumn("timestamp", f.timestamp_millis(time) if kind == "bigint" else time)


def _bad_records(source: Source, rows: DataFrame) -> DataFrame:
    """Those that `_source` drops, with headers that say why and whence."""
    _, bad_key = decode(source.key_serde, f.col("key"), stops=False)
    _, bad_value = decode(source.value_serde, f.col("value"), stops=False)
    reasons = [
        f.when(bad, f.lit(f"the {what} is no {serde} {serde.shape}"))
        for what, bad, serde in (
            ("key", bad_key, source.key_serde),
            ("value", bad_value, source.value_serde),
        )
    ]
    named = {"ottla.error.reason": f.concat_ws("; ", *reasons)} | {
        f"ottla.source.{name}": f.col(name).cast("string")
        for name in ("topic", "partition", "offset")
    }
    headers = f.array(
        *(
            f.struct(f.lit(name).alias("key"), text.cast("binary").alias("value"))
            for name, text in named.items()
        )
    )
    is_bad = f.coalesce(bad_key, f.lit(False)) | f.coalesce(bad_value, f.lit(False))
    return rows.where(is_bad).select("key", "value", "timestamp", headers.alias("headers"))


def _aggregated(node: Aggregated, rows: DataFrame) -> DataFrame:
    rows = rows.where(f.col("key").isNotNull() & f.col("value").isNotNull())
    columns = [_aggregate(each, node.parent.value).alias(name) for name, each in node.aggregates]
    latest = f.max("timestamp").alias("_latest")
    names = [f.col(name) for name, _ in node.aggregates]
    if node.window is None:
        done = rows.groupBy("key").agg(*columns, latest)
        return done.select(
            "key", f.struct(*names).alias("value"), f.col("_latest").alias("timestamp")
        )
    watermarked = rows.withWatermark("timestamp", f"{node.window.grace_ms} milliseconds")
    done = watermarked.groupBy(_window(node.window).alias("_window"), "key").agg(*columns, latest)
    start, end = f.col("_window.start"), f.col("_window.end")
    if node.window.is_session:
        # Kafka's sessions end with their last record, Spark's a gap after it.
        end = end - f.lit(timedelta(milliseconds=node.window.size_ms))
    value = f.struct(start.alias("window_start"), end.alias("window_end"), *names)
    window = f.struct(start.alias("start"), end.alias("end"))
    return done.select(
        "key", value.alias("value"), f.col("_latest").alias("timestamp"), window.alias("window")
    )


def _window(window: Window) -> Column:
    size = f"{window.size_ms} milliseconds"
    if window.every_ms is None:
        return f.session_window("timestamp", size)
    return f.window("timestamp", size, f"{window.every_ms} milliseconds")


def _aggregate(aggregate: Aggregate, value: Shape) -> Column:
    if aggregate.column is not None:
        of = f.col("value").getField(aggregate.column)
    elif value.is_record:
        return f.count(f.lit(1))
    else:
        of = f.col("value")
    return _AGGREGATES[aggregate.function](of)


def _stream_join(node: StreamJoin, left: DataFrame, right: DataFrame) -> DataFrame:
    """Records without a value join nothing, as in Kafka Streams. A record is late when the window
    in which others may join it has passed by the grace; Spark's watermark drops by the record's own
    time, so it stays behind by both."""
    delay_ms = node.within_ms + node.grace_ms
    within = f.lit(timedelta(milliseconds=node.within_ms))
    sides = []
    for name, rows in (("left", left), ("right", right)):
        watermarked = rows.where(f.col("value").isNotNull()).withWatermark(
            "timestamp", f"{delay_ms} milliseconds"
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
        _joined(node).alias("value"),
        f.greatest("left_time", "right_time").alias("timestamp"),
    )


def _table_join(node: TableJoin, rows: DataFrame, topics: Topics) -> DataFrame:
    """The latest value of each key, by offset: all records of a key are in one partition."""
    changes = _source(node.table, topics.table(node.table)).where(f.col("key").isNotNull())
    latest = changes.groupBy(f.col("key").alias("_key")).agg(
        f.max_by(f.struct("value"), "offset").alias("_latest")
    )
    table = latest.select("_key", f.col("_latest.value").alias("right"))
    table = table.where(f.col("right").isNotNull())
    rows = rows.where(f.col("value").isNotNull()).withColumnRenamed("value", "left")
    joined = rows.join(table, rows["key"] == table["_key"], _SPARK_JOINS[node.how])
    kept = [name for name in ("timestamp", "window") if name in rows.columns]
    return joined.select("key", _joined(node).alias("value"), *kept)


def _joined(node: StreamJoin | TableJoin) -> Column:
    rows = {"left": f.col("left"), "right": f.col("right")}
    return function_column(node.function, rows, ddl_type(node.value), field_names(node.value))


def has_sessions(sink: Sink) -> bool:
    return any(
        isinstance(each, Aggregated) and each.window is not None and each.window.is_session
        for each in ancestors(sink)
    )
