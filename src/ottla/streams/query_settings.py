"""Spark settings that a query takes over when it starts. The user's own settings take precedence.

| setting | why |
|---|---|
| do not count the keys in RocksDB | the count costs Spark one more look-up for each key that changes: a sixth or more of the CPU time if keys are many |
| no batches without data, for queries that emit changes | such a batch writes nothing, and scans the whole state for closed windows, which the next batch does anyway |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.streams.application import Application
from ottla.streams.operators.stateless import Transformed
from ottla.streams.operators.topics import FrameSource, Sink
from ottla.streams.plan.node import ancestors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRACK_STATE_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
"""Whether Spark runs a batch without data when the watermark has advanced."""

NAMED_SOURCES = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
"""Whether Spark stores the offsets of a query under the names of its sources."""


def query_settings(sink: Sink) -> dict[str, str]:
    settings = {TRACK_STATE_ROWS: "false"}
    has_own = any(isinstance(each, FrameSource | Transformed) for each in ancestors(sink))
    if sink.emits_changes and not has_own:
        settings[NO_DATA_BATCHES] = "false"
    return settings


def without_user_settings(
    settings: Mapping[str, str], app: Application, spark: SparkSession
) -> dict[str, str]:
    """Return the settings that the user has not set."""
    chosen = spark.conf.getAll
    return {
        name: value
        for name, value in settings.items()
        if name not in app.spark_settings and name not in chosen
    }


@contextmanager
def temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to the session while queries start, then restore it."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)
