"""Conversion between Spark's DataFrames and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.checks import sink
from ottla.streams.errors import listed, refused
from ottla.streams.plan.nodes import FrameSource, Node
from ottla.streams.plan.shapes import VALUE, Column, Shape, parse_type, plain, record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from ottla.streams.app import App


def source_of(rows: DataFrame, key: str, time: str) -> FrameSource:
    from pyspark.sql import functions as f

    if not rows.isStreaming:
        raise refused("from_df", "the DataFrame must be a stream: spark.readStream")
    for name in (key, time):
        if name not in rows.columns:
            raise refused("from_df", f"unknown column {name!r}; columns: {listed(rows.columns)}")
    if rows.schema[time].dataType.simpleString() != "timestamp":
        raise refused("from_df", f"the column {time} must be a timestamp")
    others = [each for each in rows.schema.fields if each.name not in (key, time)]
    if not others:
        raise refused("from_df", "there is no column left for the value")
    if [each.name for each in others] == [VALUE]:
        shape, value = _shape(others[0].dataType), f.col(VALUE)
    else:
        shape = record(*(Column(each.name, _type(each.dataType)) for each in others))
        value = f.struct(*(f.col(each.name) for each in others))
    chosen = rows.select(
        f.col(key).alias("key"), value.alias("value"), f.col(time).alias("timestamp")
    )
    return FrameSource(_shape(rows.schema[key].dataType), shape, chosen)


def frame_of(app: App, node: Node) -> DataFrame:
    """Return the rows of a node, read from the application's cluster."""
    import ottla.spark
    from ottla.streams.compile.frames import frame
    from ottla.streams.run import ClusterTopics

    spark = ottla.spark.session(app.master, app_name=app.name)
    return frame(node, ClusterTopics(app, sink(node, "df"), spark))


def _shape(kind: DataType) -> Shape:
    from pyspark.sql.types import StructType

    if isinstance(kind, StructType):
        return record(*(Column(each.name, _type(each.dataType)) for each in kind.fields))
    return plain(_type(kind))


def _type(kind: DataType) -> str:
    return parse_type(kind.simpleString())
