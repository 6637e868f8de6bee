"""SparkSink, which writes a topic to any Spark format, and SparkFunctionSink.

- Files (parquet, orc, csv, json, text, avro) in a local or mounted directory: exactly once. They
  are written to a staging directory and renamed once the batch is recorded (`lake_state`).
- Delta: exactly once. With `txnAppId` and `txnVersion`, Delta ignores a batch that it already has.
- Any other target, including files in object stores: at least once, by appending.

The fields of values are the columns; a value that is not a struct becomes the column `value`. Each
batch is a separate write; for large files use ParquetSink. A function receives a DataFrame with the
parts of a record as columns (topic, partition, offset, timestamp, key, value), the batch number and
the options. A redelivered batch has the same number and the same rows.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import NonEmpty
from ottla.connect.api import SinkConnector, SinkTask
from ottla.connect.atomic_file import lasting_id
from ottla.connect.column_tables import merged, typed_table, untyped_table
from ottla.connect.columns import Columns
from ottla.connect.connectors.lake_state import Ready, StateFolder
from ottla.connect.connectors.spark_formats import (
    FILE_FORMATS,
    OPTION,
    options_of,
    plain_errors,
)
from ottla.connect.connectors.spark_functions import function_of
from ottla.connect.data import (
    INT32,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    ConnectRecord,
    DataError,
    Field,
    Schema,
    Type,
    from_ms,
    infer_whole,
)
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.schema_cache import SchemaCache
from ottla.connect.session import spark_session
from ottla.connect.tables import check_row, inferred, table_of

MARK = "spark-sink"
MAX_KINDS = 1000
"""Maximum number of schemas whose text form is cached."""
_STRING, _HIGH = ConfigType.STRING, Importance.HIGH
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]+:")


class SparkSink(SinkConnector):
    uses_spark_session = True
    definition = Definition(
        [
            key("name", _STRING, "", "Name of the connector."),
            key("format", _STRING, None, "Name of the Spark format.", NonEmpty(), _HIGH),
            key("path", _STRING, "", "Directory to write to.", None, _HIGH),
            key("table", _STRING, "", "Table to write to, instead of path.", None, _HIGH),
            key(
                "partition.by",
                ConfigType.LIST,
                [],
                "Columns by which the directories are partitioned.",
            ),
        ],
        required=["format"],
        prefixes=[OPTION],
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if settings["path"] and settings["table"]:
            raise ValueError("set only one of path and table")
        if settings["format"] in FILE_FORMATS and not (settings["path"] or settings["table"]):
            raise ValueError("set path or table to where the rows are written")

    def make_task(self, settings: Settings) -> SinkTask:
        is_here = settings["path"] and not _REMOTE.match(settings["path"])
        if settings["format"] in FILE_FORMATS and is_here:
            return FilesTask(settings)
        return TableTask(settings)


class BufferingTask(SinkTask):
    """Base task that collects a batch and groups its records into tables with common columns."""

    def __init__(self) -> None:
        self._records: list[ConnectRecord] = []
        self._tables: list[Any] = []
        """Tables of records that arrived as columns."""
        self._kinds: SchemaCache[Schema, str] = SchemaCache(MAX_KINDS, repr)

    def begin(self, batch: int) -> None:
        self._batch = batch
        self._records = []
        self._tables = []

    def put(self, records: Sequence[ConnectRecord]) -> None:
        self._records += records

    def put_columns(self, columns: Columns) -> None:
        schema = columns.record.value_schema
        if schema is None:
            table = untyped_table(columns)
        elif schema.type is Type.STRUCT:
            table = typed_table(columns, schema)
        else:
            table = typed_table(columns, Schema(Type.STRUCT, fields=(Field("value", schema),)))
        self._tables.append(table)

    def tables(self) -> list[Any]:
        return [*merged(self._tables), *self._row_tables()]

    def _row_tables(self) -> list[Any]:
        groups: dict[str, tuple[Schema | None, list[tuple[ConnectRecord, Mapping[str, Any]]]]] = {}
        for record in self._records:
            schema, value = self.row(record)
            kind = "" if schema is None else self._kinds.get(schema)
            groups.setdefault(kind, (schema, []))[1].append((record, value))
        return [
            table
            for _, (schema, rows) in sorted(groups.items())
            if (table := self._table(schema, rows)) is not None
        ]

    def row(self, record: ConnectRecord) -> tuple[Schema | None, Mapping[str, Any]]:
        """Return a record as a row: its schema and values."""
        schema, value = record.value_schema, record.value
        if schema is None:
            return None, value if isinstance(value, Mapping) else {"value": value}
        if schema.type is Type.STRUCT:
            return schema, value if value is not None else {}
        return Schema(Type.STRUCT, fields=(Field("value", schema),)), {"value": value}

    def _table(
        self, schema: Schema | None, rows: Sequence[tuple[ConnectRecord, Mapping[str, Any]]]
    ) -> Any:
        try:
            values = [value for _, value in rows]
            return inferred(values) if schema is None else table_of(schema, values)
        except DataError:
            pass
        good: list[Mapping[str, Any]] = []
        for record, value in rows:
            try:
                if schema is None:
                    inferred([*good, value])
                else:
                    check_row(schema, value)
                good.append(value)
            except DataError as error:
                self.report(record, error)
        if not good:
            return None
        return inferred(good) if schema is None else table_of(schema, good)


class FilesTask(BufferingTask):
    """Task that writes files, exactly once."""

    takes_columns = True

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        name = re.sub(r"[^\w.-]", "_", settings["name"] or "sink")
        self._folder = StateFolder(settings["path"], name)

    def start(self, directory: Path) -> None:
        self._folder.open(lasting_id(directory / MARK), self.epoch)

    def end(self) -> None:
        state = self._folder.state
        if self._batch <= state.batch:
            return
        for table in self.tables():
            if table.num_rows:
                self._write(table)
        state.batch = self._batch
        self._folder.write()
        self._folder.move_ready()

    def _write(self, table: Any) -> None:
        state, made = self._folder.state, self._folder.folder / f"made-{uuid.uuid4().hex[:8]}"
        settings = self._settings
        with plain_errors(settings["format"]):
            writer = spark_session().createDataFrame(table).write.format(settings["format"])
            writer = writer.options(**options_of(settings))
            if settings["partition.by"]:
                writer = writer.partitionBy(*settings["partition.by"])
            writer.save(made.absolute().as_uri())
        for path in sorted(made.rglob("part-*")):
            name = f"part-{state.next:08}-{uuid.uuid4().hex[:8]}{''.join(path.suffixes)}"
            state.next += 1
            path.rename(self._folder.folder / name)
            state.ready.append(Ready(name, str(path.relative_to(made).parent / name)))
        shutil.rmtree(made)


class TableTask(BufferingTask):
    """Task that appends to any Spark target.

    Delta identifies the tables of a batch by number, so a redelivered batch must yield the same
    tables. The task therefore accepts records only one by one.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._id = ""

    def start(self, directory: Path) -> None:
        self._id = lasting_id(directory / MARK)

    def end(self) -> None:
        settings = self._settings
        for number, table in enumerate(self.tables()):
            if not table.num_rows:
                continue
            with plain_errors(settings["format"]):
                writer = spark_session().createDataFrame(table).write.format(settings["format"])
                writer = writer.mode("append").options(**options_of(settings))
                if settings["format"] == "delta":
                    writer = writer.option("txnAppId", f"{self._id}-{number}")
                    writer = writer.option("txnVersion", str(self._batch))
                if settings["partition.by"]:
                    writer = writer.partitionBy(*settings["partition.by"])
                if settings["table"]:
                    writer.saveAsTable(settings["table"])
                else:
                    writer.save(settings["path"] or None)


class SparkFunctionSink(SinkConnector):
    uses_spark_session = True
    definition = Definition(
        [
            key(
                "function",
                _STRING,
                None,
                "Function that is called with each batch, as package.module:function.",
                NonEmpty(),
                _HIGH,
            )
        ],
        required=["function"],
        prefixes=[OPTION],
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._function = function_of(settings["function"])

    def make_task(self, settings: Settings) -> SinkTask:
        return FunctionTask(self._function, options_of(settings))


class FunctionTask(BufferingTask):
    def __init__(self, function: Any, options: Mapping[str, str]) -> None:
        super().__init__()
        self._function = function
        self._options = options

    def start(self, directory: Path) -> None:
        return

    def row(self, record: ConnectRecord) -> tuple[Schema | None, Mapping[str, Any]]:
        key_schema = record.key_schema or infer_whole(record.key)
        value_schema = record.value_schema or infer_whole(record.value)
        schema = Schema(
            Type.STRUCT,
            fields=(
                Field("topic", STRING),
                Field("partition", INT32.as_optional()),
                Field("offset", INT64.as_optional()),
                Field("timestamp", TIMESTAMP_SCHEMA.as_optional()),
                Field("key", key_schema.as_optional()),
                Field("value", value_schema.as_optional()),
            ),
        )
        ms = record.timestamp_ms
        return schema, {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": None if ms is None else from_ms(ms),
            "key": record.key,
            "value": record.value,
        }

    def end(self) -> None:
        for table in self.tables():
            if table.num_rows:
                frame = spark_session().createDataFrame(table)
                self._function(frame, self._batch, dict(self._options))
