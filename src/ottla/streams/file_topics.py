"""Topics of a test as directories of Parquet files, for `testing`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.streams.operators.topics import Source
from ottla.streams.plan.node import Node
from ottla.streams.progress import CLOCK
from ottla.streams.run import COLUMNS, ORIGIN, TABLE_COLUMNS


class FileTopics:
    """Sources that are read from files."""

    def __init__(self, spark: SparkSession, home: Path) -> None:
        self._spark = spark
        self._home = home

    def stream(self, source: Source, *, with_origin: bool = False) -> DataFrame:
        columns = f"{COLUMNS}, {ORIGIN}" if with_origin else COLUMNS
        reader = self._spark.readStream.schema(columns)
        return reader.parquet(str(self._home / source.topic))

    def table(self, source: Source) -> DataFrame:
        self._spark.dataSource.register(ParquetTable)
        reader = self._spark.read.format(ParquetTable.name()).schema(TABLE_COLUMNS)
        return reader.load(str(self._home / source.topic))

    def clock(self, every_ms: int) -> DataFrame:
        return self._spark.readStream.schema("ms BIGINT").parquet(str(self._home / CLOCK))

    def observed(self, node: Node, rows: DataFrame) -> DataFrame:
        return rows


class ParquetTable(DataSource):
    """Parquet directory as a table that sees new files at every read.

    Spark's own Parquet source lists the files once.
    """

    @classmethod
    def name(cls) -> str:
        return "ottla-parquet-table"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options["path"], schema.fieldNames())


class _Reader(DataSourceReader):
    def __init__(self, path: str, names: list[str]) -> None:
        self._path = path
        self._names = names

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow.parquet as pq

        for file in sorted(Path(self._path).glob("*.parquet")):
            yield from pq.read_table(file).select(self._names).to_batches()
