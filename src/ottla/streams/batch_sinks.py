"""Sinks for `foreachBatch`: changes of tables into topics, exactly once, and printed records.

Spark offers Python sinks no update mode, only `foreachBatch`. There, the rows of a batch are
written by the same writer that streams use (`ottla.spark.sink`): each task stages its rows in an
open transaction and returns a row that describes it, and the driver commits the transactions under
the batch's number. By this number it recognizes a batch that Spark repeats after a crash.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from ottla.spark.sink import QUERY_ID, stream_writer
from ottla.spark.spark_connect import is_connect


class UpdateSink:
    """Sink that writes the changes of a table.

    Args:
        options: Options of `format("ottla")`.
        checkpoint: Directory of the query's checkpoint.
    """

    def __init__(self, options: Mapping[str, str], checkpoint: str) -> None:
        self._options = dict(options)
        self._checkpoint = checkpoint
        self._query: str | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        if self._query is None:
            self._query = _query_id(rows.sparkSession, self._checkpoint)
        writer = stream_writer(self._options, rows.schema, overwrite=False)
        writer.prepare()
        writer.run_as(self._query, batch_id)
        try:
            staged = rows.mapInArrow(_StageTask(writer), "message binary").collect()
        except BaseException:
            writer.abort([], batch_id)
            raise
        writer.commit([pickle.loads(row.message) for row in staged], batch_id)


def _query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the ID of the query that calls `foreachBatch`.

    A classic session has it in the thread of the query. With Spark Connect, the function runs in a
    process of its own on the server, where only the checkpoint tells it.
    """
    if is_connect(spark):
        (metadata,) = spark.read.text(f"{checkpoint}/metadata", wholetext=True).collect()
        return str(json.loads(metadata.value)["id"])
    found = spark.sparkContext.getLocalProperty(QUERY_ID)
    if found is None:
        raise AssertionError("foreachBatch runs in its query's thread")
    return found


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
