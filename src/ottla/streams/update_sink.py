"""Changes of tables into topics, exactly once.

Spark gives Python sinks no update mode, only `foreachBatch`. So a batch's rows are written there by
the very writer that streams use (`ottla.spark.sink`): tasks stage their rows in open transactions
and say so in a row each, and the driver commits them by the batch's number. A batch that Spark runs
again after a crash is recognised by that number."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from ottla.spark.sink import BATCH_ID, QUERY_ID, stream_writer


class UpdateSink:
    """For `foreachBatch`. `options` are those of `format("ottla")`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        writer = stream_writer(self._options, rows.schema, overwrite=False)
        context = rows.sparkSession.sparkContext
        context.setLocalProperty(BATCH_ID, str(batch_id))
        if context.getLocalProperty(QUERY_ID) is None:
            raise AssertionError("foreachBatch runs in its query's thread")
        try:
            staged = rows.mapInArrow(_Stage(writer), "message binary").collect()
        except BaseException:
            writer.abort([], batch_id)
            raise
        writer.commit([pickle.loads(row.message) for row in staged], batch_id)


class _Stage:
    """On executors: one task's rows, staged; its message to the driver as a row."""

    def __init__(self, writer: DataSourceStreamArrowWriter) -> None:
        self._writer = writer
        self.__name__ = "stage"

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        message = pickle.dumps(self._writer.write(batches))
        yield pa.record_batch([pa.array([message], pa.binary())], ["message"])
