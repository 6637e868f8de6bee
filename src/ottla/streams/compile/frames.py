"""Compiler: the rows of a sink, by the rules of its operators."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ottla.streams.compile import (
    aggregations,
    joins,
    processing,
    stateless,
    table_aggregations,
    topics,
)
from ottla.streams.compile.codecs import encode, windowed_key
from ottla.streams.compile.rules import Rules, Topics
from ottla.streams.operators.aggregations import PythonAggregated, windows_of
from ottla.streams.operators.topics import Sink
from ottla.streams.plan.node import Node, ancestors
from ottla.streams.serdes import default_serde

RULES: Rules = {
    **topics.RULES,
    **stateless.RULES,
    **aggregations.RULES,
    **table_aggregations.RULES,
    **processing.RULES,
    **joins.RULES,
}
LATE_REASON = "the record came after its windows had closed"


class _Frames:
    """Compiler of one query; the inputs of the rules that it calls."""

    def __init__(self, cluster: Topics) -> None:
        self.topics = cluster

    def frame(self, node: Node) -> DataFrame:
        return self.topics.observed(node, RULES[type(node)](node, self))


def frame(node: Node, cluster: Topics) -> DataFrame:
    """Return rows of key, value and timestamp, and of window where keys are windowed."""
    return _Frames(cluster).frame(node)


def sink_frame(sink: Sink, cluster: Topics) -> DataFrame:
    """Return the rows of a sink: key, value and timestamp, with headers if there are any.

    A sink with a late topic also has a `topic` column.
    """
    rows = frame(sink.parent, cluster)
    key = encode(sink.key_serde, f.col("key"), sink.key)
    if sink.has_window_in_key:
        is_session = any(window.is_session for window in windows_of(sink))
        key = windowed_key(key, f.col("window"), is_session=is_session)
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
    reason = topics.headers_of(
        {"ottla.error.reason": f.lit(LATE_REASON), "ottla.operator": f.lit(node.operator)}
    )
    return rows.select(
        f.when(is_late, late_key).otherwise(key).alias("key"),
        f.when(is_late, late_value).otherwise(value).alias("value"),
        "timestamp",
        f.when(is_late, reason).otherwise(f.slice(reason, 1, 0)).alias("headers"),
        f.when(is_late, f.lit(late_topic)).otherwise(f.lit(sink.topic)).alias("topic"),
    )
