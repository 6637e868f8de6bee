"""The data source behind `spark.read.format("ottla")`, and its batch reader.

Spark creates a `DataSource` wherever it needs one. Readers are created on the driver, plan there,
and are pickled for the executors along with the plan. This module must not import the kernels
before records are read, because Spark loads it just to find the format's name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from ottla.client.consumer.config import ConsumerConfig
from ottla.spark.frozen_modules import freeze_modules
from ottla.spark.options import SourceOptions, source_options
from ottla.spark.plan import OffsetRange, ranges_between, split
from ottla.spark.pushdown import Conditions
from ottla.spark.range_reader import RangeReader
from ottla.spark.schema import RowConverter, check_schema, source_schema
from ottla.spark.shared_client import shared_client

FORMAT = "ottla"


class OttlaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        text = str(self.options.get("includeHeaders", "false"))
        return source_schema(text.strip().lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        check_schema(schema)
        return TopicReader(source_options(self.options, is_streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from ottla.spark.stream_source import TopicStreamReader

        check_schema(schema)
        return TopicStreamReader(source_options(self.options, is_streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from ottla.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


class RangePartition(InputPartition):
    """Offset range that one task reads. None means nothing: Spark requires at least one task."""

    def __init__(self, offset_range: OffsetRange | None) -> None:
        super().__init__(None if offset_range is None else tuple(offset_range))

    @property
    def range(self) -> OffsetRange | None:
        return None if self.value is None else OffsetRange(*self.value)


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

    def partitions(self) -> Sequence[InputPartition]:
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


def read_range(
    options: SourceOptions, schema: StructType, partition: InputPartition
) -> Iterator[Any]:
    """Yield the rows of a partition as Arrow record batches, on an executor."""
    freeze_modules()
    offset_range = partition.range if isinstance(partition, RangePartition) else None
    if offset_range is None:
        return
    rows = RowConverter(schema, offset_range.topic, offset_range.partition)
    reader = RangeReader(
        shared_client(ConsumerConfig, options.client),
        options.config(),
        offset_range,
        rows.columns,
        fail_on_data_loss=options.fail_on_data_loss,
        timeout_ms=options.poll_timeout_ms,
    )
    for records in reader:
        yield from rows.batches(records)
