"""Sinks for `foreachBatch`: changes of tables into topics, exactly once, and printed records.

Spark offers Python sinks no update mode, only `foreachBatch`. There, the rows of a batch are
written by the same writer that streams use (`ottla.spark.sink`): each task stages its rows in an
open transaction and returns a row that describes it, and the driver commits the transactions under
the batch's number. By this number it recognizes a batch that Spark repeats after a crash.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from ottla.spark.sink import BATCH_ID, QUERY_ID, stream_writer


class UpdateSink:
    """Sink that writes the changes of a table. `options` are those of `format("ottla")`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        writer = stream_writer(self._options, rows.schema, overwrite=False)
        writer.prepare()
        context = rows.sparkSession.sparkContext
        context.setLocalProperty(BATCH_ID, str(batch_id))
        if context.getLocalProperty(QUERY_ID) is None:
            raise AssertionError("foreachBatch runs in its query's thread")
        try:
            staged = rows.mapInArrow(_StageTask(writer), "message binary").collect()
        except BaseException:
            writer.abort([], batch_id)
            raise
        writer.commit([pickle.loads(row.message) for row in staged], batch_id)


class _StageTask:
    """Function for executors that stages the rows of a task and returns its message as a row."""

    def __init__(self, writer: DataSourceStreamArrowWriter) -> None:
        self._writer = writer
        self.__name__ = "stage"

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        message = pickle.dumps(self._writer.write(batches))
        yield pa.record_batch([pa.array([message], pa.binary())], ["message"])


class PrintSink:
    """Sink that prints records in the format of Kafka Streams' `print`: `[label]: key, value`.

    A batch that is repeated after a crash is printed again.
    """

    def __init__(self, label: str) -> None:
        self._label = label

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        for row in rows.select("key", "value").toLocalIterator():
            sys.stdout.write(f"[{self._label}]: {_text(row.key)}, {_text(row.value)}\n")
        sys.stdout.flush()


def _text(data: bytes | bytearray | None) -> str:
    return "null" if data is None else bytes(data).decode(errors="replace")
