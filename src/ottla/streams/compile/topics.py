"""Rules for sources: decoded keys and values of a topic, and records that cannot be parsed."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ottla.streams.compile.codecs import decode
from ottla.streams.compile.columns import ROWS
from ottla.streams.compile.python_functions import function_column, functions_over
from ottla.streams.compile.rules import Inputs, Rules, Topics
from ottla.streams.operators.topics import BadRecords, FrameSource, Source


def decoded(source: Source, rows: DataFrame) -> DataFrame:
    stops = source.bad_records == "stop"
    key, bad_key = decode(source.key_serde, f.col("key"), stops=stops)
    value, bad_value = decode(source.value_serde, f.col("value"), stops=stops)
    if not stops:
        # A tombstone is not bad: for null, `is_bad` is null.
        for is_bad in (bad_key, bad_value):
            rows = rows.where(~f.coalesce(is_bad, f.lit(False)))
    more = [name for name in ("offset",) if name in rows.columns]
    rows = rows.select(key.alias("key"), value.alias("value"), "timestamp", *more)
    if source.time is None:
        return rows
    with functions_over(rows):
        time = function_column(source.time, ROWS, "timestamp", ())
    kind = rows.select(time.alias("time")).schema["time"].dataType.simpleString()
    return rows.withColumn("timestamp", f.timestamp_millis(time) if kind == "bigint" else time)


def latest(source: Source, topics: Topics) -> DataFrame:
    """Return the current rows of a table in the micro-batch, as `_key` and `right`.

    The latest value of a key is the one with the highest offset: all records of a key are in one
    partition.
    """
    changes = decoded(source, topics.table(source)).where(f.col("key").isNotNull())
    newest = changes.groupBy(f.col("key").alias("_key")).agg(
        f.max_by(f.struct("value"), "offset").alias("_latest")
    )
    table = newest.select("_key", f.col("_latest.value").alias("right"))
    return table.where(f.col("right").isNotNull())


def _source(node: Source, inputs: Inputs) -> DataFrame:
    return decoded(node, inputs.topics.stream(node))


def _frame_source(node: FrameSource, inputs: Inputs) -> DataFrame:
    return node.rows  # type: ignore[no-any-return]


def _bad_records(node: BadRecords, inputs: Inputs) -> DataFrame:
    """Return the records that `decoded` drops, with headers for the reason and the origin."""
    source = node.source
    rows = inputs.topics.stream(source, with_origin=True)
    _, bad_key = decode(source.key_serde, f.col("key"), stops=False)
    _, bad_value = decode(source.value_serde, f.col("value"), stops=False)
    reasons = [
        f.when(bad, f.lit(f"the {what} is not a valid {serde} {serde.shape}"))
        for what, bad, serde in (
            ("key", bad_key, source.key_serde),
            ("value", bad_value, source.value_serde),
        )
    ]
    named = {"ottla.error.reason": f.concat_ws("; ", *reasons)} | {
        f"ottla.source.{name}": f.col(name).cast("string")
        for name in ("topic", "partition", "offset")
    }
    is_bad = f.coalesce(bad_key, f.lit(False)) | f.coalesce(bad_value, f.lit(False))
    headers = headers_of(named).alias("headers")
    return rows.where(is_bad).select("key", "value", "timestamp", headers)


def headers_of(named: dict[str, Column]) -> Column:
    """Return texts as the headers of a record."""
    return f.array(
        *(
            f.struct(f.lit(name).alias("key"), text.cast("binary").alias("value"))
            for name, text in named.items()
        )
    )


RULES: Rules = {Source: _source, FrameSource: _frame_source, BadRecords: _bad_records}
