"""Offset range that one task reads, and its rows: what batch queries and streams share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ottla.client.consumer.config import ConsumerConfig
from ottla.spark.frozen_modules import freeze_modules
from ottla.spark.options import SourceOptions
from ottla.spark.plan import OffsetRange
from ottla.spark.range_reader import RangeReader
from ottla.spark.schema import RowConverter
from ottla.spark.shared_client import shared_client


class RangePartition(InputPartition):
    """Offset range that one task reads. None means nothing: Spark requires at least one task."""

    def __init__(self, offset_range: OffsetRange | None) -> None:
        super().__init__(None if offset_range is None else tuple(offset_range))

    @property
    def range(self) -> OffsetRange | None:
        return None if self.value is None else OffsetRange(*self.value)


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
