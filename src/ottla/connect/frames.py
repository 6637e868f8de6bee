"""Sources that are streaming DataFrames: Spark reads them instead of a `poll` method.

    Spark's query ─► spool/BATCH/ (Parquet) ─► poll ─► transforms, converters ─► topics

Spark may recompute a batch with its rows in another order. Each batch is therefore written to the
spool once, completely, before any of it is used, and `poll` reads it from there. The source offset
is

    {"batch": number of Spark's batch, "rows": number of its rows that are in topics}

`checkpoint.location` holds Spark's checkpoint and the spool; the worker and Spark's executors must
share it. It is tied to the connector's source offsets: without them, the task clears it and starts
from the beginning.

A frame with a column `value` has a column for each part of a record: `value` and, optionally,
`key`, `topic`, `partition`, `timestamp` and `headers` (an array of structs of key and value). The
columns of any other frame are the fields of the value. The property `topic` names the topic of
rows that have none.
"""

from __future__ import annotations

import datetime
import shutil
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ottla.base.config.definition import ConfigType, Importance
from ottla.base.config.validator import NonEmpty
from ottla.base.errors import UserError
from ottla.connect.api import Offsets, Polled, SourceConnector, SourceTask
from ottla.connect.columns import (
    MANY_RECORDS,
    ColumnBatch,
    Columns,
    NotInColumns,
    column_of,
    has_columns,
)
from ottla.connect.data import (
    ConnectRecord,
    FailedRecord,
    Header,
    Schema,
    infer_schema,
    to_ms,
)
from ottla.connect.definition import Definition, Settings, key
from ottla.connect.session import spark_session
from ottla.connect.spark_errors import reason_of
from ottla.connect.tables import connect_schema, plain_values

MAX_ROWS = 5_000
"""Maximum number of rows that one `poll` returns."""
MAX_SPOOLED = 2
"""Maximum number of batches that Spark may be ahead of `poll`."""
LOOK_EVERY_S = 0.02
DONE = "_SUCCESS"
"""Marker file that Spark creates when a folder is complete."""
_STRING = ConfigType.STRING

FRAME = Definition(
    [
        key("topic", _STRING, "", "Topic of rows without a column topic.", None, Importance.HIGH),
        key("checkpoint.location", _STRING, None,
            "Directory for Spark's checkpoint and for rows that are not in topics yet.", NonEmpty(),
            Importance.HIGH),
    ],
    required=["checkpoint.location"],
)  # fmt: skip
"""Properties of every `FrameSource`: `topic` and `checkpoint.location`."""


class FrameSource(SourceConnector):
    """Base class of sources that are streaming DataFrames. Their definition must include FRAME.

    The columns of the frame are the fields of the value. If there is a column `value`, the columns
    `value`, `key`, `topic`, `partition`, `timestamp` and `headers` are the parts of the record.

    Example:
        class Rate(FrameSource):
            def frame(self, spark: SparkSession) -> DataFrame:
                return spark.readStream.format("rate").load().selectExpr("value AS id")
    """

    definition = FRAME
    uses_spark_session = True

    @abstractmethod
    def frame(self, spark: Any) -> Any:
        """Return the streaming DataFrame. The worker calls it at each start of the task.

        Args:
            spark: Spark session of the worker.
        """

    def error_message(self, error: BaseException) -> str:
        """Return a one-sentence reason for the end of Spark's query.

        Args:
            error: Error that Spark reports.
        """
        return reason_of(str(error))

    def make_task(self, settings: Settings) -> SourceTask:
        return FrameTask(self, settings)

    def check_offset(self, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        wanted = {"checkpoint.location": self.settings["checkpoint.location"]}
        numbers = [offset.get("batch"), offset.get("rows")]
        if partition != wanted or not all(isinstance(each, int) and each >= 0 for each in numbers):
            raise ValueError('the source offset must have the form {"batch": …, "rows": …}')


class FrameTask(SourceTask):
    def __init__(self, connector: FrameSource, settings: Settings) -> None:
        self._connector = connector
        self._topic = settings["topic"]
        self._location = Path(settings["checkpoint.location"])
        self._checkpoint = self._location / "checkpoint"
        self._partition = {"checkpoint.location": settings["checkpoint.location"]}
        self._batch = self._rows = 0
        """Position of the next row to return."""
        self._reading: Iterator[Any] | None = None
        """Remaining Arrow batches of the current Spark batch."""
        self._ahead: Any = None
        """Next Arrow batch, read ahead to detect the end of the Spark batch."""
        self._query: Any = None
        self._is_stopped = threading.Event()

    def start(self, offsets: Offsets) -> None:
        known = [offset for partition, offset in offsets if partition == self._partition]
        if known:
            self._batch, self._rows = known[-1]["batch"], known[-1]["rows"]
        else:
            for ours in (self._checkpoint, self._spool(0).parent):
                shutil.rmtree(ours, ignore_errors=True)
        try:
            self._spool(0).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = (error.strerror or "it cannot be created").lower()
            raise UserError(f"Cannot use {self._location}: {reason}.") from error
        frame = self._connector.frame(spark_session())
        if not getattr(frame, "isStreaming", False):
            raise UserError("The DataFrame must be streaming; create it with spark.readStream.")
        self._query = (
            frame.writeStream.foreachBatch(self._write_spool)
            .option("checkpointLocation", self._checkpoint.absolute().as_uri())
            .start()
        )

    def stop(self) -> None:
        self._is_stopped.set()
        if self._query is not None:
            self._query.stop()

    def poll(self, wait_s: float) -> Polled:
        until = time.monotonic() + wait_s
        while True:
            if self._reading is None and (self._spool(self._batch) / DONE).exists():
                self._reading = self._batches(self._batch, self._rows)
                self._ahead = next(self._reading, None)
            if self._reading is not None:
                return self._next(self._reading)
            if not self._query.isActive:
                error = self._query.exception()
                message = (
                    self._connector.error_message(error) if error else "The Spark query has ended."
                )
                raise UserError(message)
            if time.monotonic() >= until:
                return Polled()
            time.sleep(LOOK_EVERY_S)

    def _next(self, reading: Iterator[Any]) -> Polled:
        rows, self._ahead = self._ahead, next(reading, None)
        if rows is not None:
            self._rows += rows.num_rows
        if self._ahead is None:
            self._batch, self._rows, self._reading = self._batch + 1, 0, None
        offsets: Offsets = [(self._partition, {"batch": self._batch, "rows": self._rows})]
        if rows is None:
            return Polled(offsets=offsets)
        records = partial(_records, rows, self._topic)
        try:
            batch = ColumnBatch(_columns(rows, self._topic), records)
        except NotInColumns:
            return Polled(records(), offsets)
        return Polled(offsets=offsets, columns=[batch])

    def commit(self, offsets: Offsets) -> None:
        for _, offset in offsets:
            for each in self._spool(0).parent.iterdir():
                if each.name.isdecimal() and int(each.name) < offset["batch"]:
                    shutil.rmtree(each, ignore_errors=True)

    # ---------------------------------------------------------------------------------- spool

    def _spool(self, batch: int) -> Path:
        return self._location / "spool" / f"{batch:08}"

    def _write_spool(self, frame: Any, batch: int) -> None:
        """Write a batch to the spool. Spark calls this in a thread of its own."""
        folder = self._spool(batch)
        if batch < self._batch or (folder / DONE).exists():
            return
        frame.write.mode("overwrite").parquet(folder.absolute().as_uri())
        while batch - self._batch >= MAX_SPOOLED and not self._is_stopped.is_set():
            time.sleep(LOOK_EVERY_S)

    def _batches(self, batch: int, done: int) -> Iterator[Any]:
        """Yield the rows of a spooled batch, without the first `done` ones, which are in topics."""
        import pyarrow.parquet as pq

        for path in sorted(self._spool(batch).glob("part-*")):
            for rows in pq.ParquetFile(path).iter_batches(MAX_ROWS):
                if rows.num_rows > done:
                    yield rows.slice(done)
                done = max(0, done - rows.num_rows)


def _records(batch: Any, topic: str) -> list[ConnectRecord]:
    return list(records_of(batch, topic))


def _columns(batch: Any, topic: str) -> Columns:
    """Return the columns of a frame whose columns are the fields of the value."""
    if not has_columns() or batch.num_rows < MANY_RECORDS:
        raise NotInColumns("the batch is small")
    if "value" in batch.schema.names or not topic:
        raise NotInColumns("the columns are the parts of a record, not fields of its value")
    schema = connect_schema(batch.schema)
    value = column_of(batch.to_struct_array(), schema)
    return Columns(ConnectRecord(topic, value, schema), batch.num_rows)


def records_of(batch: Any, topic: str) -> Iterator[ConnectRecord]:
    """Yield the records in an Arrow batch; the module's docstring describes its columns."""
    schema = connect_schema(batch.schema)
    values = plain_values(batch, schema)
    if "value" not in batch.schema.names:
        for value in values:
            yield _placed(ConnectRecord(topic, value, schema))
        return
    kinds = {each.name: each.schema for each in schema.fields}
    for value in values:
        yield _placed(_record(value, kinds, topic))


def _placed(record: ConnectRecord) -> ConnectRecord:
    if record.topic:
        return record
    return FailedRecord(
        "", record.value, error="a row has no topic, and the property topic is not set",
        source="FrameSource",
    )  # fmt: skip


def _record(parts: Mapping[str, Any], kinds: Mapping[str, Schema], topic: str) -> ConnectRecord:
    time_ = parts.get("timestamp")
    return ConnectRecord(
        parts.get("topic") or topic,
        parts["value"],
        kinds["value"],
        parts.get("key"),
        kinds.get("key"),
        parts.get("partition"),
        None,
        to_ms(time_) if isinstance(time_, datetime.datetime) else time_,
        tuple(
            Header(each["key"], infer_schema(each["value"]), each["value"])
            for each in parts.get("headers") or ()
        ),
    )
