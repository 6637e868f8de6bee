"""Offset range that one task reads, and its rows: what batch queries and streams share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ottla.base.types import TopicPartition
from ottla.client.consumer.config import ConsumerConfig
from ottla.spark.frozen_modules import freeze_modules
from ottla.spark.options import SourceOptions
from ottla.spark.plain_errors import plain_errors
from ottla.spark.plan import OffsetRange
from ottla.spark.range_reader import FetchedRecords, RangeReader, decoded
from ottla.spark.schema import RowConverter
from ottla.spark.shared_client import shared_client


class RangePartition(InputPartition):
    """Offset range that one task reads. None means nothing: Spark requires at least one task.

    Args:
        offset_range: The range.
        fetched: The records of the range, if the planner has fetched them already.
    """

    def __init__(
        self, offset_range: OffsetRange | None, fetched: FetchedRecords | None = None
    ) -> None:
        super().__init__(None if offset_range is None else tuple(offset_range))
        self.fetched = fetched

    @property
    def range(self) -> OffsetRange | None:
        return None if self.value is None else OffsetRange(*self.value)


def read_range(
    options: SourceOptions, schema: StructType, partition: InputPartition
) -> Iterator[Any]:
    """Yield the rows of a partition as Arrow record batches, on an executor."""
    freeze_modules()
    if not isinstance(partition, RangePartition) or partition.range is None:
        return
    offset_range = partition.range
    rows = RowConverter(schema, offset_range.topic, offset_range.partition)
    records: Iterable[Any]
    if partition.fetched is not None:
        tp = TopicPartition(offset_range.topic, offset_range.partition)
        start, end = offset_range.start, offset_range.end
        records = decoded(partition.fetched, tp, start, end, rows.columns)
    else:
        with plain_errors():
            records = _reader(options, offset_range, rows.columns)
    with plain_errors():
        for batch in records:
            yield from rows.batches(batch)


def _reader(options: SourceOptions, offset_range: OffsetRange, columns: list[str]) -> RangeReader:
    return RangeReader(
        shared_client(ConsumerConfig, options.client),
        options.config(),
        offset_range,
        columns,
        fail_on_data_loss=options.fail_on_data_loss,
        timeout_ms=options.poll_timeout_ms,
    )
