"""The data source behind `spark.read.format("ottla")`.

Spark creates a `DataSource` wherever it needs one, and loads this module just to find the format's
name. Readers and writers are imported when they are needed."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.spark.options import source_options
from ottla.spark.schema import check_schema, source_schema

FORMAT = "ottla"


class OttlaDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        text = str(self.options.get("includeHeaders", "false"))
        return source_schema(text.strip().lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark.batch_source import TopicReader

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
