"""Training run for `java_cache`: Spark loads the classes that a typical program needs.

    python -m ottla.spark.java_cache_training FILE

It runs a table and three streams with a small Python source and sink in place of topics. FILE then
has the class path of the JVM and its options, a line each."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "ottla-training"
COLUMNS = "key BINARY, value BINARY, timestamp TIMESTAMP"
ROWS = 20
BATCHES = 3
EXIT_TIMEOUT_S = 300.0


class TrainingSource(DataSource):
    """Stream of a few rows with the columns of a topic, and a sink that drops rows."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return TrainingTableReader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return TrainingReader()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return TrainingWriter()


class TrainingReader(DataSourceStreamReader):
    _batch = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, *limits: object) -> dict[str, int]:  # noqa: N802
        self._batch = min(self._batch + 1, BATCHES)
        return {"batch": self._batch}

    def partitions(self, *offsets: object) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield _rows()


class TrainingTableReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield _rows()


def _rows() -> Any:
    import time

    import pyarrow as pa

    now_us = time.time_ns() // 1000
    values = [b'{"item": "tea", "amount": %d}' % number for number in range(ROWS)]
    return pa.record_batch(
        {
            "key": pa.array([b"key"] * ROWS, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array([now_us] * ROWS, pa.timestamp("us", "UTC")),
        }
    )


class TrainingWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _collect(rows: DataFrame, batch_id: int) -> None:
    rows.mapInArrow(_same, rows.schema).collect()


def run_queries(spark: SparkSession, folder: str) -> None:
    from pyspark.sql import functions as f

    spark.dataSource.register(TrainingSource)
    spark.read.format(FORMAT).load().selectExpr("cast(value as string)").collect()
    parsed = f.from_json(f.col("value").cast("string"), "item STRING, amount DOUBLE")

    def source() -> DataFrame:
        rows = spark.readStream.format(FORMAT).schema(COLUMNS).load()
        return rows.withColumn("order", parsed).mapInArrow(
            _same, f"{COLUMNS}, order STRUCT<item: STRING, amount: DOUBLE>"
        )

    counts = source().groupBy("order.item").agg(f.sum("order.amount").alias("total"))
    late = source().withWatermark("timestamp", "1 minute")
    windows = late.groupBy(f.window("timestamp", "10 seconds"), "order.item").count()
    copied = source().where("order.amount > 1").observe("rows", f.count(f.lit(1)).alias("rows"))
    value = f.to_json(f.struct("*")).cast("binary").alias("value")
    queries = [
        counts.select(value).writeStream.outputMode("update").foreachBatch(_collect),
        windows.select(value).writeStream.outputMode("update").foreachBatch(_collect),
        copied.select("key", value).writeStream.outputMode("append").format(FORMAT),
    ]
    for number, query in enumerate(queries):
        started = query.option("checkpointLocation", f"{folder}/{number}").start()
        started.processAllAvailable()
        started.stop()


def main(described: str) -> None:
    import ottla.spark

    spark = ottla.spark.session("local[2]", app_name="ottla java cache")
    spark.sparkContext.setLogLevel("OFF")
    context: Any = spark.sparkContext
    with tempfile.TemporaryDirectory() as folder:
        run_queries(spark, folder)
    jvm = context._jvm
    runtime = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    options = list(runtime.getInputArguments())
    class_path = str(jvm.System.getProperty("java.class.path"))
    process = context._gateway.proc
    spark.stop()
    # The JVM writes what it has recorded when it exits, which it does when its input ends.
    process.stdin.close()
    process.wait(EXIT_TIMEOUT_S)
    Path(described).write_text("\n".join([class_path, *map(str, options)]))


if __name__ == "__main__":
    main(sys.argv[1])
