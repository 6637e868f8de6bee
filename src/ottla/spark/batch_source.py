"""Reader of `spark.read.format("ottla")`.

It is created on the driver, plans there, and is pickled for the executors along with the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ottla.spark.options import SourceOptions
from ottla.spark.plain_errors import plain_errors
from ottla.spark.plan import ranges_between, split
from ottla.spark.pushdown import Conditions
from ottla.spark.range_partition import RangePartition, read_range


class _PushFilters:
    """Callable `pushFilters` of a reader that works whether or not the session pushes down filters.

    Spark rejects a reader that overrides the method if the session does not push down filters,
    which is the default. It checks the method's `__func__`, so this claims to be the inherited
    one."""

    def __init__(self, reader: TopicReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        return self._reader.conditions.push_down(filters)


class TopicReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self.conditions = Conditions()
        self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]

    @plain_errors()
    def partitions(self) -> Sequence[InputPartition]:
        # Imported here because executors, which only read, do without them.
        from ottla.spark.cluster_offsets import ClusterOffsets
        from ottla.spark.offsets import AtTimestamps

        options, offsets = self._options, ClusterOffsets(self._options)
        partitions = offsets.partitions()
        start = offsets.offsets("startingOffsets", options.starting, partitions)
        end = offsets.offsets("endingOffsets", options.ending, partitions)
        start, end = self.conditions.narrow(start, end)
        if self.conditions.min_timestamp_ms is not None:
            since = AtTimestamps(self.conditions.min_timestamp_ms, {})
            for tp, offset in offsets.offsets("timestamp", since, end).items():
                start[tp] = max(start[tp], offset)
        ranges = split(
            ranges_between(start, end), options.min_partitions, options.max_records_per_partition
        )
        return [RangePartition(each) for each in ranges] or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, self._schema, partition)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema, "conditions": self.conditions}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.pushFilters = _PushFilters(self)  # type: ignore[method-assign]
