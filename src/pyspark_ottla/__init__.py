"""Where Spark finds the format `ottla` by itself: when a session first meets a Python data source,
it imports every module named `pyspark_…` and registers the `DefaultSource` of each."""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
