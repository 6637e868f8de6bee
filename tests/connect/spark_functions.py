"""Functions that Spark connectors of tests call; configured by their import path."""

from __future__ import annotations

from typing import Any

PLACE = "tests.connect.spark_functions"
SEEN: list[tuple[int, list[dict[str, Any]], dict[str, str]]] = []


def lines(spark: Any, options: dict[str, str]) -> Any:
    """Return a streaming DataFrame with the columns of a record."""
    frame = spark.readStream.format("text").load(options["folder"])
    return frame.selectExpr("value", "'k' AS key", "1234 AS timestamp")


def batch(spark: Any, options: dict[str, str]) -> Any:
    return spark.range(3)


def see(frame: Any, batch: int, options: dict[str, str]) -> None:
    SEEN.append((batch, [row.asDict(recursive=True) for row in frame.collect()], options))
