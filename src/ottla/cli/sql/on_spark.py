"""Execution of statements in a Spark session that starts quickly and prints nothing.

Most of the time of a short query goes into Python processes: Spark starts one to create the data
source, one to push down filters, one to plan and one to read. Topics of up to MAX_LOCAL_BYTES are
therefore read in this process and passed to Spark as Arrow; Spark's tasks read larger topics.

The JVM and its child processes write to a file (`--spark-log`) instead of the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError
from ottla.cli.sql.error_messages import Tables, of_spark
from ottla.spark.spark_session import JAVA_OPTIONS, SHORT_LIVED
from ottla.spark.topic_snapshot import TopicSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_LOCAL_BYTES = 64 << 20
MAX_LOCAL_OFFSETS = 1_000_000


@dataclass(frozen=True)
class ParseOptions:
    """Options of the command that control how the values of topics are parsed."""

    value_format: str
    schema: str | None
    mode: str


@dataclass(frozen=True)
class Source:
    """A topic that a statement queries."""

    snapshot: TopicSnapshot
    options: Mapping[str, str]
    """Options of the data source `format("ottla")`."""

    def records(self) -> Any | None:
        """Return all records as an Arrow table, or None if the topic is too large."""
        import pyarrow

        from ottla.spark.schema import RowConverter, source_schema

        if self.snapshot.size > MAX_LOCAL_OFFSETS:
            return None
        schema = source_schema(include_headers=False)
        found: list[Any] = []
        size = 0
        for part in self.snapshot.ranges:
            rows = RowConverter(schema, part.topic, part.partition)
            for _, records in self.snapshot.read(rows.columns, [part]):
                found += rows.batches(records)
                size += records.nbytes
                if size > MAX_LOCAL_BYTES:
                    return None
        from pyspark.sql.pandas.types import to_arrow_schema

        return pyarrow.Table.from_batches(found, to_arrow_schema(schema, timezone="UTC"))


def run(
    statement: str,
    sources: Sequence[Source],
    reading: ParseOptions,
    topics: Sequence[str],
    *,
    master: str,
    max_rows: int,
    log: str | None,
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a statement and return its columns and at most `max_rows` rows.

    Raises:
        UserError: Spark is not installed, did not start, or rejected the statement.
    """
    _check_installed()
    is_local = master.startswith("local")
    records = {each.snapshot.topic: each.records() if is_local else None for each in sources}
    is_short = is_local and all(each is not None for each in records.values())
    spark = _start_session(master, log, is_short=is_short)
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    tables = Tables(topics, [each.snapshot for each in sources])
    try:
        for each in sources:
            name = each.snapshot.topic
            frame, tables.formats[name] = _frame(spark, each, records.pop(name), reading)
            tables.columns[name] = frame.columns
            frame.createOrReplaceTempView(f"`{name}`")
        frame = spark.sql(statement)
        return frame.columns, [tuple(row) for row in frame.limit(max_rows).collect()]
    except (PySparkException, Py4JJavaError) as error:
        raise of_spark(error, tables) from None
    finally:
        spark.stop()


def _frame(
    spark: SparkSession, source: Source, records: Any | None, reading: ParseOptions
) -> tuple[DataFrame, str]:
    from ottla.spark.topic_table import chosen_format, parsed

    value_format, schema = reading.value_format, reading.schema
    if value_format == "auto" or (value_format == "json" and schema is None):
        sample = source.snapshot.sample()
        value_format, found = chosen_format(spark, sample, value_format, schema)
    else:
        found = schema
    if records is None:
        rows = spark.read.format("ottla").options(**source.options).load()
    else:
        rows = spark.createDataFrame(records)
    frame = parsed(rows, source.options, value_format, found, reading.mode, metadata=True)
    return frame, value_format


# ----------------------------------------------------------------------------------- the session


def _check_installed() -> None:
    from importlib.util import find_spec

    from ottla.base.installation import install_extra

    if find_spec("pyspark") is None:
        raise UserError(
            f"This statement requires Spark. Install it with: {install_extra('spark')}\n"
            "Without Spark, ottla sql supports SELECT … FROM a topic with WHERE … AND … and LIMIT, "
            "and SELECT count(*)."
        )


def _start_session(master: str, log: str | None, *, is_short: bool) -> SparkSession:
    import logging

    import ottla.spark

    # PySpark also logs the errors that it raises, with the JVM's stack trace.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    settings = {JAVA_OPTIONS: SHORT_LIVED} if is_short else {}
    with _stderr_into(log) as path:
        try:
            spark = ottla.spark.session(master, app_name="ottla sql", **settings)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"Spark did not start: {_reason(path, error)}") from None
    spark.sparkContext.setLogLevel("WARN" if log else "OFF")
    return spark


def _reason(path: Path, error: Exception) -> str:
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    relevant = [
        line for line in lines if line and "WARN" not in line and not line.startswith("Using")
    ]
    return (relevant[-1] if relevant else str(error).splitlines()[0])[:400]


@contextlib.contextmanager
def _stderr_into(log: str | None) -> Iterator[Path]:
    """Redirect standard error of this process and of new child processes to a file."""
    with contextlib.ExitStack() as stack:
        if log is None:
            descriptor, name = tempfile.mkstemp(prefix="ottla-sql-")
            stack.callback(os.unlink, name)
        else:
            try:
                descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            except OSError as error:
                raise UserError(f"Cannot write --spark-log {log}: {error.strerror}.") from None
            name = log
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        try:
            yield Path(name)
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
