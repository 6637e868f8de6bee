"""Translation of all plan nodes to DataFrames."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ottla.base.errors import UserError
from ottla.streams.compile.aggregations import (
    aggregated,
    changing,
    processed,
    python_aggregated,
    table_aggregated,
    time_limited,
)
from ottla.streams.compile.codecs import encode, windowed_key
from ottla.streams.compile.columns import ROWS
from ottla.streams.compile.joining import (
    foreign_join,
    stream_join,
    subscribing,
    table_join,
    tables_join,
)
from ottla.streams.compile.python_functions import (
    RESULT,
    calling_column,
    field_names,
    function_column,
    pair_column,
    pairs_column,
)
from ottla.streams.compile.sources import Topics, bad_records, decoded, headers_of, latest
from ottla.streams.plan.nodes import (
    Aggregated,
    BadRecords,
    Changing,
    Deduplicated,
    Failures,
    Filter,
    FlatMap,
    FlatMapValues,
    ForeignJoin,
    FrameSource,
    Lookup,
    Map,
    MapValues,
    Merge,
    Node,
    Peek,
    Processed,
    PythonAggregated,
    Repartitioned,
    SelectKey,
    Sink,
    Source,
    StreamJoin,
    Subscribing,
    Suppressed,
    TableAggregated,
    TableFilter,
    TableJoin,
    TablesJoin,
    Transformed,
    ancestors,
)
from ottla.streams.plan.shapes import type_of
from ottla.streams.plan.tracing import InPython
from ottla.streams.serdes import default_serde

LATE_REASON = "the record came after its windows had closed"


def sink_frame(sink: Sink, topics: Topics) -> DataFrame:
    """Return the rows of a sink: key, value and timestamp, with headers if there are any.

    A sink with a late topic also has a `topic` column.
    """
    rows = frame(sink.parent, topics)
    key = encode(sink.key_serde, f.col("key"), sink.key)
    if sink.has_window_in_key:
        key = windowed_key(key, f.col("window"), is_session=has_sessions(sink))
    value = encode(sink.value_serde, f.col("value"), sink.value)
    if sink.late_topic is not None:
        return _with_late(sink, rows, key, value, sink.late_topic)
    more = [name for name in ("headers",) if name in rows.columns]
    return rows.select(key.alias("key"), value.alias("value"), "timestamp", *more)


def _with_late(
    sink: Sink, rows: DataFrame, key: Column, value: Column, late_topic: str
) -> DataFrame:
    """Route late records, in the form in which they reached the window, to their own topic."""
    (node,) = (each for each in ancestors(sink) if isinstance(each, PythonAggregated))
    input_node = node.parent
    is_late = f.col("late").isNotNull()
    late_key = encode(default_serde(input_node.key), f.col("key"), input_node.key)
    late_value = encode(default_serde(input_node.value), f.col("late"), input_node.value)
    reason = headers_of(
        {"ottla.error.reason": f.lit(LATE_REASON), "ottla.operator": f.lit(node.operator)}
    )
    return rows.select(
        f.when(is_late, late_key).otherwise(key).alias("key"),
        f.when(is_late, late_value).otherwise(value).alias("value"),
        "timestamp",
        f.when(is_late, reason).otherwise(f.slice(reason, 1, 0)).alias("headers"),
        f.when(is_late, f.lit(late_topic)).otherwise(f.lit(sink.topic)).alias("topic"),
    )


def frame(node: Node, topics: Topics) -> DataFrame:
    """Return rows of key, value and timestamp, and of window where keys are windowed."""
    return topics.observed(node, _frame(node, topics))


def _frame(node: Node, topics: Topics) -> DataFrame:  # noqa: C901 - one case per operator
    match node:
        case Source():
            return decoded(node, topics.stream(node))
        case BadRecords(source=source):
            return bad_records(source, topics.stream(source, with_origin=True))
        case Failures():
            return _failures(node, topics)
        case FrameSource(rows=rows):
            return rows  # type: ignore[no-any-return]
        case Merge(left=left, right=right):
            return frame(left, topics).unionByName(frame(right, topics))
        case Deduplicated(parent=parent, function=function, within_ms=within_ms):
            identity = function_column(function, ROWS, "string", ())
            rows = frame(parent, topics).withWatermark("timestamp", f"{within_ms} milliseconds")
            marked = rows.withColumn("_identity", identity)
            return marked.dropDuplicatesWithinWatermark(["_identity"]).drop("_identity")
        case Aggregated():
            return aggregated(node, frame(node.parent, topics))
        case PythonAggregated():
            return python_aggregated(node, frame(node.parent, topics), is_final=False)
        case Suppressed(parent=PythonAggregated() as parent, limit_ms=limit_ms):
            rows, is_final = frame(parent.parent, topics), limit_ms is None
            return python_aggregated(parent, rows, is_final=is_final, limit_ms=limit_ms)
        case Suppressed(parent=parent, limit_ms=None):
            return frame(parent, topics)
        case Suppressed(parent=parent, limit_ms=int(limit_ms)):
            return time_limited(node, frame(parent, topics), limit_ms)
        case Changing():
            return changing(node, frame(node.parent, topics))
        case TableAggregated():
            return table_aggregated(node, frame(node.parent, topics))
        case Processed(clock_ms=clock_ms):
            clock = None if clock_ms is None else topics.clock(clock_ms)
            return processed(node, frame(node.parent, topics), clock)
        case StreamJoin():
            return stream_join(node, frame(node.left, topics), frame(node.right, topics))
        case TableJoin() | Lookup():
            return table_join(node, frame(node.left, topics), latest(node.table, topics))
        case TablesJoin():
            return tables_join(node, frame(node.left, topics), frame(node.right, topics))
        case Subscribing():
            return subscribing(node, frame(node.parent, topics))
        case ForeignJoin():
            return foreign_join(node, frame(node.left, topics), frame(node.right, topics))
    return _stateless_frame(node, frame(node.parents[0], topics))


def _stateless_frame(node: Node, rows: DataFrame) -> DataFrame:
    """Return the rows of an operator that handles each record on its own."""
    match node:
        case Repartitioned(partitions=partitions):
            return rows.repartition(partitions, "key")
        case Transformed():
            return _transformed(node, rows)
    made = _result_column(node)
    if not _catches_errors(node):
        return _with_result(node, rows, made)
    attempted = rows.withColumn(RESULT, made).where(f.col(RESULT).getField("failure").isNull())
    return _with_result(node, attempted, f.col(RESULT).getField("outcome")).drop(RESULT)


def _result_column(node: Node) -> Column:
    """Return the column that holds the result of the operator's function."""
    match node:
        case Filter(function=function):
            return function_column(function, ROWS, "boolean", ())
        case TableFilter(function=function):
            return function_column(function, ROWS, "boolean", (), skips=("value",))
        case MapValues(function=function, keeps_null=keeps_null):
            names, skips = field_names(node.value), ("value",) if keeps_null else ()
            return function_column(function, ROWS, type_of(node.value), names, skips=skips)
        case FlatMapValues(function=function):
            many = f"array<{type_of(node.value)}>"
            return function_column(function, ROWS, many, field_names(node.value))
        case Map(function=function):
            return pair_column(function, ROWS, node.key, node.value)
        case FlatMap(function=InPython() as function):
            return pairs_column(function, ROWS, node.key, node.value)
        case SelectKey(function=function):
            return function_column(function, ROWS, type_of(node.key), field_names(node.key))
        case Peek(function=InPython() as function):
            return calling_column(function, ROWS)
    raise AssertionError(f"unknown node {type(node).__name__}")


def _with_result(node: Node, rows: DataFrame, result: Column) -> DataFrame:
    match node:
        case Filter(negated=negated):
            return rows.where(_passes(result, negated))
        case TableFilter(negated=negated):
            return rows.withColumn("value", f.when(_passes(result, negated), f.col("value")))
        case MapValues():
            return rows.withColumn("value", result)
        case FlatMapValues():
            return rows.withColumn("value", f.explode(result))
        case Map():
            return _from_pair(rows.withColumn("_pair", result))
        case FlatMap():
            return _from_pair(rows.withColumn("_pair", f.explode(result)))
        case SelectKey():
            return rows.withColumn("key", result).drop("window")
        case Peek():
            return rows.where(result)
    raise AssertionError(f"unknown node {type(node).__name__}")


def _catches_errors(node: Node) -> bool:
    return bool(getattr(getattr(node, "function", None), "catches_errors", False))


def _failures(node: Failures, topics: Topics) -> DataFrame:
    """Return the records, as bytes, on which the function of any operator raised."""
    parts = []
    for each in node.operators:
        input_node = each.parents[0]
        rows = frame(input_node, topics).withColumn(RESULT, _result_column(each))
        failure = f.col(RESULT).getField("failure")
        name = each.function.name  # type: ignore[attr-defined]
        headers = headers_of({"ottla.error.reason": failure, "ottla.function": f.lit(name)})
        parts.append(
            rows.where(failure.isNotNull()).select(
                encode(default_serde(input_node.key), f.col("key"), input_node.key).alias("key"),
                encode(default_serde(input_node.value), f.col("value"), input_node.value).alias(
                    "value"
                ),
                "timestamp",
                headers.alias("headers"),
            )
        )
    return reduce(DataFrame.unionByName, parts)


def _passes(condition: Column, negated: bool) -> Column:
    is_true = f.coalesce(condition, f.lit(False))
    return ~is_true if negated else is_true


def _from_pair(rows: DataFrame) -> DataFrame:
    return rows.select("_pair.key", "_pair.value", "timestamp")


def _transformed(node: Transformed, rows: DataFrame) -> DataFrame:
    made = node.function.function(rows)
    names = getattr(made, "columns", [])
    missing = [name for name in ("key", "value", "timestamp") if name not in names]
    if missing:
        raise UserError(
            f"transform: the function {node.function.name} must return a DataFrame with the "
            f"columns key, value, timestamp; {', '.join(missing)} is missing"
        )
    key, value = (
        f.col(name).cast(type_of(shape)).alias(name)
        for name, shape in (("key", node.key), ("value", node.value))
    )
    kept = ["window"] if "window" in names else []
    return made.select(key, value, "timestamp", *kept)  # type: ignore[no-any-return]


def has_sessions(sink: Sink) -> bool:
    windows = [
        each.window for each in ancestors(sink) if isinstance(each, Aggregated | PythonAggregated)
    ]
    return any(window is not None and window.is_session for window in windows)
