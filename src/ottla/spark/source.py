"""The data source behind `spark.read.format("ottla")`.

Spark creates a `DataSource` wherever it needs one, and loads this module just to find the format's
name. Readers and writers are imported when they are needed.

For each batch of a stream, Spark creates a data source and asks it for the writer that the tasks
use. To commit the batch, it asks a data source that it unpickles. If a later version did otherwise,
batches would fail: an unprepared writer writes nothing, and a second preparation fences the
first."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ottla.base.errors import KafkaError, UserError
from ottla.client.errors import InvalidConfig
from ottla.spark.options import source_options
from ottla.spark.plain_errors import RejectedStreamReader, plain_errors
from ottla.spark.schema import check_schema, source_schema

FORMAT = "ottla"


def _require_options(options: Mapping[str, str]) -> None:
    """Refuse a read without options, such as that of a table of a catalog.

    Spark 4.3 does not pass the options of CREATE TABLE to sources in Python.
    """
    if not options:
        raise InvalidConfig(
            "The source has no options. Set kafka.bootstrap.servers and subscribe. For a table "
            "that was created with CREATE TABLE … USING ottla, Spark does not pass them on: use "
            "CREATE TEMPORARY VIEW … USING ottla OPTIONS (…), or ottla.spark.table."
        )


class OttlaDataSource(DataSource):
    _is_unpickled = False

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._is_unpickled = True

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @plain_errors()
    def schema(self) -> StructType:
        # Spark asks for it in `load`, before it is known whether the query is a stream. A table of
        # a catalog has no options.
        if self.options:
            try:
                source_options(self.options, is_streaming=True)
            except InvalidConfig:
                source_options(self.options, is_streaming=False)
        text = str(self.options.get("includeHeaders", "false"))
        return source_schema(text.strip().lower() == "true")

    @plain_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark.batch_source import TopicReader

        _require_options(self.options)
        check_schema(schema)
        return TopicReader(source_options(self.options, is_streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from ottla.spark.stream_source import TopicStreamReader

        try:
            _require_options(self.options)
            check_schema(schema)
            return TopicStreamReader(source_options(self.options, is_streaming=True), schema)
        except (KafkaError, UserError) as error:
            return RejectedStreamReader(error)

    @plain_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    @plain_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from ottla.spark.sink import stream_writer

        writer = stream_writer(self.options, schema, overwrite)
        if not self._is_unpickled:
            writer.prepare()
        return writer
