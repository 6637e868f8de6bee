"""Parquet directory as a Spark table that sees new files at every read. For `testing`.

Spark's own Parquet source lists the files once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType


class ParquetTable(DataSource):
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
