"""Conversion between Spark's DataFrames and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.streams.application import Application
from ottla.streams.errors import listed, topology_error
from ottla.streams.operators.topics import FrameSource, make_sink
from ottla.streams.plan.node import Node
from ottla.streams.plan.shapes import (
    VALUE,
    Column,
    DataShape,
    parse_type,
    plain_shape,
    record_shape,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


def source_of(rows: DataFrame, key: str, time: str) -> FrameSource:
    from pyspark.sql import functions as f

    if not rows.isStreaming:
        raise topology_error(
            "from_df", "the DataFrame must be streaming; create it with spark.readStream"
        )
    for name in (key, time):
        if name not in rows.columns:
            raise topology_error(
                "from_df", f"unknown column {name!r}; columns: {listed(rows.columns)}"
            )
    if rows.schema[time].dataType.simpleString() != "timestamp":
        raise topology_error("from_df", f"the column {time} must be a timestamp")
    others = [each for each in rows.schema.fields if each.name not in (key, time)]
    if not others:
        raise topology_error("from_df", "the DataFrame has no column for the value")
    if [each.name for each in others] == [VALUE]:
        shape, value = _shape(others[0].dataType), f.col(VALUE)
    else:
        shape = record_shape(*(Column(each.name, _type(each.dataType)) for each in others))
        value = f.struct(*(f.col(each.name) for each in others))
    chosen = rows.select(
        f.col(key).alias("key"), value.alias("value"), f.col(time).alias("timestamp")
    )
    return FrameSource(_shape(rows.schema[key].dataType), shape, chosen)


def frame_of(app: Application, node: Node) -> DataFrame:
    """Return the rows of a node, read from the application's cluster."""
    import ottla.spark
    from ottla.streams.compile.frames import frame
    from ottla.streams.run import ClusterTopics

    spark = ottla.spark.session(app.master, app_name=app.name)
    return frame(node, ClusterTopics(app, make_sink(node, "df"), spark))


def _shape(kind: DataType) -> DataShape:
    from pyspark.sql.types import StructType

    if isinstance(kind, StructType):
        return record_shape(*(Column(each.name, _type(each.dataType)) for each in kind.fields))
    return plain_shape(_type(kind))


def _type(kind: DataType) -> str:
    return parse_type(kind.simpleString())
