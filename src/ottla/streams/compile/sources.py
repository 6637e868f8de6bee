"""Sources -> DataFrames: a topic's bytes as keys and values, and those that cannot be parsed."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ottla.streams.compile.codecs import decode
from ottla.streams.compile.columns import ROWS
from ottla.streams.compile.python_functions import function_column
from ottla.streams.plan.nodes import Node, Source


class Topics(Protocol):
    """Where a source's rows come from: topics of a cluster, or a test's records. Their columns are
    those of `format("ottla")`: key, value, timestamp, and offset for tables."""

    def stream(self, source: Source, *, with_origin: bool = False) -> DataFrame:
        """Rows as they come; with topic, partition and offset if asked for."""

    def table(self, source: Source) -> DataFrame:
        """All rows there are, anew in every micro-batch."""

    def clock(self, every_ms: int) -> DataFrame:
        """What the clock on the wall shows, so often: rows of `ms`."""

    def observed(self, node: Node, rows: DataFrame) -> DataFrame:
        """The same rows, counted on their way if anybody wants to know how many there are."""


def decoded(source: Source, rows: DataFrame) -> DataFrame:
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
    time = function_column(source.time, ROWS, "timestamp", ())
    kind = rows.select(time.alias("time")).schema["time"].dataType.simpleString()
    return rows.withColumn("timestamp", f.timestamp_millis(time) if kind == "bigint" else time)


def latest(source: Source, topics: Topics) -> DataFrame:
    """A table as it is in the micro-batch: `_key` and `right`. What is latest is so by offset: all
    records of a key are in one partition."""
    changes = decoded(source, topics.table(source)).where(f.col("key").isNotNull())
    newest = changes.groupBy(f.col("key").alias("_key")).agg(
        f.max_by(f.struct("value"), "offset").alias("_latest")
    )
    table = newest.select("_key", f.col("_latest.value").alias("right"))
    return table.where(f.col("right").isNotNull())


def bad_records(source: Source, rows: DataFrame) -> DataFrame:
    """Those that `decoded` drops, with headers that say why and whence."""
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
    is_bad = f.coalesce(bad_key, f.lit(False)) | f.coalesce(bad_value, f.lit(False))
    headers = headers_of(named).alias("headers")
    return rows.where(is_bad).select("key", "value", "timestamp", headers)


def headers_of(named: dict[str, Column]) -> Column:
    """Texts, as the headers of a record."""
    return f.array(
        *(
            f.struct(f.lit(name).alias("key"), text.cast("binary").alias("value"))
            for name, text in named.items()
        )
    )
