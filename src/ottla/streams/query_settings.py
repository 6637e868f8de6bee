"""Settings of Spark's that a query takes with it when it starts; a user's own win.

| setting | why |
|---|---|
| the keys in RocksDB are not counted | to count them, Spark looks up each key once more when it changes: a sixth or more of the processor's time where keys are many |
| no batch without data, for changes of windows | it writes nothing, and looks through all of the state for windows that have closed, which the next batch does anyway |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.streams.plan.nodes import FrameSource, Sink, Transformed, ancestors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.streams.app import App

COUNTED_STATE = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
EXTRA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
"""Whether Spark runs a batch without data when stream time has moved on."""


def query_settings(sink: Sink) -> dict[str, str]:
    settings = {COUNTED_STATE: "false"}
    has_own = any(isinstance(each, FrameSource | Transformed) for each in ancestors(sink))
    if sink.emits_changes and not has_own:
        settings[EXTRA_BATCHES] = "false"
    return settings


def not_chosen(settings: Mapping[str, str], app: App, spark: SparkSession) -> dict[str, str]:
    """Without those that the user has set."""
    chosen = spark.sparkContext.getConf()
    return {
        name: value
        for name, value in settings.items()
        if name not in app.spark_settings and not chosen.contains(name)
    }


@contextmanager
def applied(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """While queries start; then the session is as it was."""
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
