"""Sink that writes a topic as Parquet files in Hive-style directories (exactly once).

A file grows over many batches. It is published as a whole, by a rename, when it has `flush.size`
records or `file.size.bytes` bytes, when it is `rotate.interval.ms` old, or when the sink stops.
`lake_state` describes how this is exactly once, and `lake_layout` the directories. Records with
different schemas go to different files. Values without a schema get a common schema for their file;
if they have none, they go to several files.

`path` is a local or mounted directory in which renames are atomic. For object stores and table
formats use SparkSink.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import AtLeast, NonEmpty, OneOf
from ottla.base.errors import UserError
from ottla.connect.api import Guarantee, SinkConnector, SinkTask
from ottla.connect.atomic_file import lasting_id
from ottla.connect.column_tables import shares_of, typed_table, untyped_table
from ottla.connect.columns import Columns, NotInColumns, check_not_null
from ottla.connect.connectors.lake_files import StagedWriter, make_parquet
from ottla.connect.connectors.lake_layout import LAYOUT_KEYS, Layout
from ottla.connect.connectors.lake_state import (
    Limits,
    OpenFile,
    Ready,
    Staged,
    StateFolder,
    which_to_roll,
)
from ottla.connect.data import ConnectRecord, DataError, Field, Schema, Type
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.schema_cache import SchemaCache
from ottla.connect.tables import arrow_schema, check_row, inferred, table_of

logger = logging.getLogger(__name__)

MARK = "lake-sink"
MAX_OPEN_FILES = 200
LOOK_EVERY_S = 1.0
_STRING, _LONG = ConfigType.STRING, ConfigType.LONG


class ParquetSink(SinkConnector):
    guarantee = Guarantee.EXACTLY_ONCE
    definition = Definition(
        [
            key("name", _STRING, "", "Name of the connector."),
            key("path", _STRING, None, "Directory to write to.", NonEmpty(), Importance.HIGH),
            key("flush.size", _LONG, 1_000_000, "Maximum number of records per file.", AtLeast(1)),
            key("file.size.bytes", _LONG, 128 * 1024 * 1024,
                "Approximate size of a file's records before compression, in bytes.", AtLeast(1)),
            key("rotate.interval.ms", _LONG, 600_000,
                "Maximum time until a record's file is published, in milliseconds; -1 for no "
                "limit.", AtLeast(-1)),
            key("parquet.codec", _STRING, "snappy", "Compression codec of the files.",
                OneOf(("none", "snappy", "gzip", "zstd", "lz4", "brotli"))),
            key("behavior.on.null.values", _STRING, "fail",
                "Treatment of tombstones: fail, or ignore them.", OneOf(("fail", "ignore"))),
            *LAYOUT_KEYS,
        ],
        required=["path"],
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        if re.match(r"[a-z][a-z0-9+.-]+://", settings["path"]):
            raise ValueError("path must be a directory. Use SparkSink for object stores")
        Layout(settings, lambda: 0)

    def make_task(self, settings: Settings) -> SinkTask:
        return ParquetSinkTask(settings)


class ParquetSinkTask(SinkTask):
    takes_columns = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._layout = Layout(settings, _now_ms)
        name = re.sub(r"[^\w.-]", "_", settings["name"] or "sink")
        self._folder = StateFolder(settings["path"], name)
        self._limits = Limits(
            settings["flush.size"],
            settings["file.size.bytes"],
            settings["rotate.interval.ms"],
            MAX_OPEN_FILES,
        )
        self._kinds: SchemaCache[Schema, tuple[Schema, str]] = SchemaCache(
            1000, partial(_kind, self._layout.fields)
        )
        self._tables: dict[tuple[str, str], list[Any]] = {}
        """Tables of the current batch, by directory and kind."""
        self._writers: dict[tuple[str, str], StagedWriter] = {}
        self._batch: int | None = None
        self._is_done = False
        """Whether the current batch is a redelivery of one that was committed."""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._clock: threading.Thread | None = None

    # ------------------------------------------------------------------------------ lifecycle

    def start(self, directory: Path) -> None:
        self._folder.open(lasting_id(directory / MARK), self.epoch)
        if self._limits.age_ms >= 0:
            self._clock = threading.Thread(target=self._watch_age, daemon=True)
            self._clock.start()

    def stop(self) -> None:
        """Publish staged records, unless a batch was interrupted."""
        self._stopping.set()
        if self._clock is not None:
            self._clock.join()
        with self._lock:
            if self._batch is None and self._folder.state.open and not self._folder.is_lost:
                self._roll(self._folder.state.open)
            self._close_writers(list(self._writers))

    def _watch_age(self) -> None:
        """Publish files that reach their maximum age while no batches arrive."""
        while not self._stopping.wait(min(LOOK_EVERY_S, max(self._limits.age_ms, 10) / 1000)):
            with self._lock:
                if self._folder.is_lost:
                    return
                due = which_to_roll(self._folder.state.open, self._limits, _now_ms())
                if self._batch is None and due:
                    try:
                        self._roll(due)
                    except OSError as error:
                        # The next batch raises the error if it persists.
                        logger.warning("%s: %s", self._folder.folder, error)

    # -------------------------------------------------------------------------------- batches

    def begin(self, batch: int) -> None:
        with self._lock:
            if self._folder.is_lost:
                raise UserError(f"Another task has taken over {self._settings['path']}.")
            is_interrupted = self._batch is not None
            self._is_done = batch <= self._folder.state.batch
            self._batch = batch
            self._tables = {}
            if is_interrupted:
                self._close_writers(list(self._writers))
                self._folder.reload()

    def put(self, records: Sequence[ConnectRecord]) -> None:
        if self._is_done:
            return
        groups: dict[
            tuple[str, str], list[tuple[ConnectRecord, Mapping[str, Any], Schema | None]]
        ] = {}
        for record in records:
            try:
                placed = self._place(record)
            except DataError as error:
                self.report(record, error)
                continue
            if placed is not None:
                where, value, schema = placed
                groups.setdefault(where, []).append((record, value, schema))
        for where, rows in groups.items():
            for table in self._made(rows):
                self._tables.setdefault(where, []).append(table)

    def put_columns(self, columns: Columns) -> None:
        if self._is_done:
            return
        check_not_null(columns.record.value)
        try:
            folders = self._layout.folders(columns)
        except DataError as error:
            raise NotInColumns(str(error)) from None
        if columns.record.value_schema is None:
            table, kind = untyped_table(columns, self._layout.fields), ""
        else:
            schema, kind = self._kinds.get(columns.record.value_schema)
            table = typed_table(columns, schema)
        for folder, share in shares_of(table, folders):
            self._tables.setdefault((folder, kind), []).append(share)

    def end(self) -> None:
        with self._lock:
            if not self._is_done:
                self._commit()
            self._batch = None

    # ------------------------------------------------------------------------ records as rows

    def _place(
        self, record: ConnectRecord
    ) -> tuple[tuple[str, str], Mapping[str, Any], Schema | None] | None:
        """Return directory and kind, fields and schema of a record, or None to skip it."""
        value, schema = record.value, record.value_schema
        if value is None:
            if self._settings["behavior.on.null.values"] == "fail":
                raise DataError(
                    "a record has no value. Set behavior.on.null.values=ignore to skip such records"
                )
            return None
        if not isinstance(value, Mapping) or (schema is not None and schema.type is Type.MAP):
            value = {"value": value}
        folder = self._layout.folder(record, value)
        if self._layout.fields:
            value = {k: each for k, each in value.items() if k not in self._layout.fields}
        if schema is None:
            return (folder, ""), value, None
        kept, kind = self._kinds.get(schema)
        return (folder, kind), value, kept

    def _made(
        self, rows: Sequence[tuple[ConnectRecord, Mapping[str, Any], Schema | None]]
    ) -> Iterable[Any]:
        """Return the rows as one table, or as several if values do not fit together."""
        schema = rows[0][2]
        values = [value for _, value, _ in rows]
        try:
            return [inferred(values) if schema is None else table_of(schema, values)]
        except DataError:
            pass
        good, apart = [], []
        for record, value, _ in rows:
            try:
                if schema is None:
                    # The fields have no common type: one table per row, and separate files.
                    apart.append(inferred([value]))
                else:
                    check_row(schema, value)
                    good.append(value)
            except DataError as error:
                self.report(record, error)
        return [table_of(schema, good)] if schema is not None and good else apart

    # ------------------------------------------------------------------------------ committing

    def _commit(self) -> None:
        state, now_ms = self._folder.state, _now_ms()
        files = {(each.folder, each.kind): each for each in state.open}
        for where, tables in self._tables.items():
            file = files.get(where)
            if file is None:
                file = OpenFile(*where, since_ms=now_ms)
                state.open.append(file)
            for table in tables:
                self._stage(where, file, table)
        for writer in self._writers.values():
            writer.sync()
        assert self._batch is not None
        state.batch = self._batch
        self._roll(which_to_roll(state.open, self._limits, now_ms))

    def _stage(self, where: tuple[str, str], file: OpenFile, table: Any) -> None:
        writer = self._writers.get(where)
        if writer is None or not writer.takes(table):
            self._close_writers([where])
            name = f"{self._folder.state.next:08}.arrow"
            self._folder.state.next += 1
            writer = self._writers[where] = StagedWriter(self._folder.folder / name, table.schema)
            file.staged.append(Staged(name, 0))
        file.staged[-1].length = writer.write(table)
        file.records += table.num_rows
        file.bytes += table.nbytes

    def _roll(self, files: Sequence[OpenFile]) -> None:
        """Convert files to Parquet and publish them; write the state even if there are none."""
        state = self._folder.state
        done = list(files)
        for file in done:
            self._close_writers([(file.folder, file.kind)])
            staged = [(self._folder.folder / each.name, each.length) for each in file.staged]
            for made in make_parquet(staged, self._folder.folder, self._settings["parquet.codec"]):
                name = f"part-{state.next:08}-{uuid.uuid4().hex[:8]}.parquet"
                state.next += 1
                made.rename(self._folder.folder / name)
                state.ready.append(Ready(name, f"{file.folder}/{name}"))
        state.open = [each for each in state.open if each not in done]
        self._folder.write()
        self._folder.move_ready()
        for file in done:
            for each in file.staged:
                (self._folder.folder / each.name).unlink(missing_ok=True)

    def _close_writers(self, places: Iterable[tuple[str, str]]) -> None:
        for where in places:
            writer = self._writers.pop(where, None)
            if writer is not None:
                writer.close()


def _kind(gone: Sequence[str], schema: Schema) -> tuple[Schema, str]:
    """Return the schema of the stored fields, and a key that is the same for equal schemas."""
    if schema.type is not Type.STRUCT:
        schema = Schema(Type.STRUCT, fields=(Field("value", schema),))
    fields = tuple(each for each in schema.fields if each.name not in gone)
    kept = Schema(Type.STRUCT, fields=fields)
    return kept, arrow_schema(kept).to_string()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
