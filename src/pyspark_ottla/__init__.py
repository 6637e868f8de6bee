"""Entry point through which Spark discovers the format `ottla`.

When a session first looks up a Python data source, Spark imports every module whose name starts
with `pyspark_` and registers its `DefaultSource`."""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
