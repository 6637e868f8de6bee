"""Sink of `df.write.format("ottla")` and `df.writeStream.format("ottla")`.

    value       string or binary; null is a tombstone       (required)
    key         string or binary
    topic       string; the option `topic` overrides it     (one of the two is required)
    partition   int; null: by key, as Java's producers do; without a key: any
    headers     array<struct<key: string, value: binary>>
    timestamp   timestamp, or bigint in ms; null: now       (not in Spark's own sink)

Other columns are ignored. Batch queries are written at least once (a task that is retried repeats
its rows) or, with `delivery=exactly-once`, in transactions that are committed when all tasks are
done. Streams are written exactly once: see `exactly_once`. Their output mode is append or update,
which needs the JVM part (see `realtime`). The complete mode would rewrite the whole table with each
batch. Streams in real-time mode are written at least once, by `realtime.sink_end`.

Spark creates a stream's writer on the driver for each batch, and once more to commit it. The first
one is prepared (`TopicStreamWriter.prepare`) and pickled for the executors; see `source`."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ottla.base.errors import KafkaError, UserError
from ottla.client.errors import InvalidConfig
from ottla.client.producer.transaction_coordinator import ProducerIdentity
from ottla.spark import exactly_once
from ottla.spark.decisions import Decision, StagedTransaction
from ottla.spark.exactly_once import PreparedBatch, sink_client
from ottla.spark.fingerprint import Fingerprint
from ottla.spark.frozen_modules import freeze_modules
from ottla.spark.options import SinkOptions, sink_options
from ottla.spark.plain_errors import plain_errors
from ottla.spark.record_writer import RecordWriter, take_writer
from ottla.spark.transactions import EndResult, init_producer

logger = logging.getLogger(__name__)

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")
BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz", "bigint"),
    "headers": ("array<struct<key:string,value:binary>>", "map<string,binary>"),
}


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """Message from a task to the driver."""

    task: int
    staged: StagedTransaction | None = None
    driver: ProducerIdentity | None = None
    query: str = ""
    is_replay: bool = False
    """Whether the batch was decided in an earlier run."""
    is_finished: bool = False
    """Whether this task's part of that batch is committed."""
    follows_other_query: bool = False
    """Whether the name belonged to another query, whose last batch may be unfinished."""


def batch_writer(
    raw_options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    _reject_overwrite(overwrite)
    options = sink_options(raw_options, is_streaming=False)
    check_columns(schema, options)
    if options.is_exactly_once:
        # A unique name, so that concurrent writes do not fence each other.
        own = f"{options.transactional_id or 'ottla-spark'}-{uuid.uuid4().hex[:12]}"
        options = replace(options, transactional_id=own)
    return TopicWriter(options, schema.fieldNames())


def stream_writer(
    raw_options: Mapping[str, str], schema: StructType, overwrite: bool
) -> TopicStreamWriter:
    if overwrite:  # Spark's flag for the complete mode
        raise InvalidConfig(
            "A stream cannot be written to topics with outputMode('complete'), because a topic "
            "cannot be overwritten. Use outputMode('update') to write the rows that change."
        )
    freeze_modules()
    options = sink_options(raw_options, is_streaming=True)
    check_columns(schema, options)
    return TopicStreamWriter(options, schema.fieldNames())


def _reject_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidConfig("A topic cannot be overwritten. Use mode('append').")


def check_columns(schema: StructType, options: SinkOptions) -> None:
    names = {each.name: each.dataType.simpleString() for each in schema.fields}
    if "value" not in names:
        present = ", ".join(names)
        raise InvalidConfig(f"The rows have no column 'value'. Their columns: {present}.")
    if options.topic is None and "topic" not in names:
        raise InvalidConfig(
            "The rows have no topic. Set the option topic, or add a column 'topic'."
        )
    for name, allowed in _TYPES.items():
        if name == "topic" and options.topic is not None:
            continue
        if name in names and names[name] not in allowed:
            raise InvalidConfig(
                f"Column '{name}' must be {' or '.join(allowed)}, not {names[name]}."
            )


# -------------------------------------------------------------------------------------- executors


class RowsToRecords:
    """Converter from Arrow batches of rows to records, which it passes to a writer."""

    def __init__(self, options: SinkOptions, names: list[str], writer: RecordWriter) -> None:
        self._options = options
        self._ignores_keys = options.config().partitioner_ignore_keys
        self._writer = writer
        self._names = [
            name
            for name in COLUMNS
            if name in names
            and not (name == "topic" and options.topic is not None)
            and not (name == "headers" and not options.include_headers)
        ]

    def write(self, batch: Any, fingerprint: Fingerprint | None = None) -> None:
        rows = {name: batch.column(name) for name in self._names}
        if fingerprint is not None:
            fingerprint.rows += batch.num_rows
            for name, column in rows.items():
                fingerprint.add(name, column)
        if self._options.topic is not None:
            self._write(self._options.topic, rows)
            return
        import pyarrow.compute as pc

        topics = rows.pop("topic")
        if topics.null_count:
            raise UserError("A row has no topic. Fill the column 'topic', or set the option topic.")
        for topic in pc.unique(topics):
            chosen = pc.equal(topics, topic)
            self._write(
                topic.as_py(), {name: column.filter(chosen) for name, column in rows.items()}
            )

    def _write(self, topic: str, rows: Mapping[str, Any]) -> None:
        from ottla.wire.records.columnar.columns import RecordColumns

        columns = RecordColumns(
            key=rows.get("key"),
            value=rows["value"],
            headers=rows.get("headers"),
            timestamp=rows.get("timestamp"),
            default_timestamp_ms=time.time_ns() // 1_000_000,
        )
        self._writer.write(topic, columns, self._partitions(topic, rows))

    def _partitions(self, topic: str, rows: Mapping[str, Any]) -> Any:
        import numpy as np

        from ottla.wire.records.columnar.partition import partition_by_key

        key, count = rows.get("key"), self._writer.partition_count(topic)[0]
        if key is None or self._ignores_keys or key.null_count == len(key):
            chosen = np.full(len(rows["value"]), -1, np.int32)
        else:
            chosen = partition_by_key(key, count)
        named = rows.get("partition")
        if named is None:
            return chosen
        import pyarrow.compute as pc

        numbers = pc.fill_null(named, -1).to_numpy(zero_copy_only=False)
        if len(numbers) and numbers.min() < -1:
            raise UserError(f"A row has the invalid partition {numbers.min()}.")
        return np.where(numbers >= 0, numbers, chosen)


def write_at_least_once(options: SinkOptions, names: list[str], iterator: Iterator[Any]) -> None:
    writer = take_writer(sink_client(options), options.config())
    rows = RowsToRecords(options, names, writer)
    try:
        for batch in iterator:
            if batch.num_rows:
                rows.write(batch)
        writer.finish()
    except BaseException:
        writer.stop()
        raise
    writer.keep()


def write_staged(
    options: SinkOptions,
    names: list[str],
    iterator: Iterator[Any],
    task: int,
    attempt: int,
) -> StagedTransaction | None:
    """Write a task's rows in a transaction and leave it open; return None without rows."""
    client, config = sink_client(options), options.config()
    name = exactly_once.task_id(options, task, attempt)
    fingerprint = Fingerprint()
    writer: RecordWriter | None = None
    producer: ProducerIdentity | None = None
    try:
        for batch in iterator:
            if not batch.num_rows:
                continue
            if writer is None:
                producer = client.run(
                    init_producer, client.cluster, name, config.transaction_timeout_ms
                )
                writer = RecordWriter(client, config, producer)
                rows = RowsToRecords(options, names, writer)
            rows.write(batch, fingerprint)
        if writer is not None:
            writer.finish()
            writer.stop()
    except BaseException:
        if writer is not None and producer is not None:
            writer.stop()
            _abort_quietly(options, StagedTransaction(task, producer, 0, ""))
        raise
    if producer is None:
        return None
    return StagedTransaction(task, producer, fingerprint.rows, fingerprint.text())


def _abort_quietly(options: SinkOptions, staged: StagedTransaction) -> None:
    try:
        exactly_once.abort(options, [staged])
    except KafkaError as error:
        logger.warning(
            "could not abort transaction %s: %s", staged.producer.transactional_id, error
        )


# --------------------------------------------------------------------------------------- batches


class TopicWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, names: list[str]) -> None:
        self._options = options
        self._names = names

    @plain_errors()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        freeze_modules()
        task, attempt, _ = _task()
        if not self._options.is_exactly_once:
            write_at_least_once(self._options, self._names, iterator)
            return TaskWritten(task)
        return TaskWritten(task, write_staged(self._options, self._names, iterator, task, attempt))

    @plain_errors()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = _staged(messages)
        if staged:
            client = sink_client(self._options)
            decision = Decision("", 0, tuple(staged))
            client.run(exactly_once.commit_all, client.cluster, decision, staged)

    @plain_errors()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = _staged(messages)
        if staged:
            exactly_once.abort(self._options, staged)


# --------------------------------------------------------------------------------------- streams


class TopicStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, names: list[str]) -> None:
        self._options = options
        self._names = names
        self._prepared: PreparedBatch | None = None
        self._query_batch: tuple[str, int] | None = None

    def run_as(self, query: str, batch: int) -> None:
        """Set the query and the batch, for tasks whose local properties do not name them."""
        self._query_batch = query, batch

    def prepare(self) -> None:
        """Take over from earlier runs of the query, before the tasks of a batch start."""
        if self._options.is_exactly_once:
            self._prepared = exactly_once.prepare(self._options)

    # ------------------------------------------------------------------------------- executors

    @plain_errors()
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        freeze_modules()
        task, attempt, properties = _task()
        if not self._options.is_exactly_once:
            write_at_least_once(self._options, self._names, iterator)
            return TaskWritten(task)
        assert self._prepared is not None, "the driver prepares the writer that it pickles"
        query, batch = self._query_batch or (properties[QUERY_ID], int(properties[BATCH_ID]))
        message = TaskWritten(task, None, self._prepared.driver, query)
        decision = self._prepared.decision
        if decision is None or decision.query != query or decision.batch < batch:
            follows_other_query = decision is not None and decision.query != query
            if decision is not None and follows_other_query:
                own = exactly_once.task_id(self._options, task, attempt)
                for each in decision.transactions:
                    if each.producer.transactional_id == own:  # about to be reused
                        exactly_once.finish_task(self._options, each)
            staged = write_staged(self._options, self._names, iterator, task, attempt)
            return replace(message, staged=staged, follows_other_query=follows_other_query)
        if decision.batch > batch:
            raise exactly_once.BatchUndecidable(
                f"Batch {batch} cannot be written, because batch {decision.batch} of this query is "
                "already committed: the checkpoint is older than the output. To write again from "
                "this checkpoint, start the query with another kafka.transactional.id."
            )
        return self._finish_decided(iterator, decision, replace(message, is_replay=True), attempt)

    def _finish_decided(
        self, iterator: Iterator[Any], decision: Decision, message: TaskWritten, attempt: int
    ) -> WriterCommitMessage:
        """Finish this task's part of a batch that is already decided."""
        before = decision.transaction_of(message.task)
        if before is None:
            _drain(iterator)
            return message
        end = exactly_once.finish_task(self._options, before)
        if end is EndResult.COMPLETED:
            _drain(iterator)
            return replace(message, is_finished=True)
        if end is EndResult.FORGOTTEN:
            raise exactly_once.undecidable(
                decision.batch, before, end, "so its outcome cannot be determined"
            )
        staged = write_staged(self._options, self._names, iterator, message.task, attempt)
        if staged is None or staged[2:] != before[2:]:
            if staged is not None:
                _abort_quietly(self._options, staged)
            now = 0 if staged is None else staged.rows
            raise exactly_once.undecidable(
                decision.batch,
                before,
                end,
                f"and the task now produces different rows ({now} rows)",
            )
        return replace(message, staged=staged)

    # ---------------------------------------------------------------------------------- driver

    @plain_errors()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        results = [each for each in messages if isinstance(each, TaskWritten)]
        if not results or results[0].driver is None:
            return
        driver, query, staged = results[0].driver, results[0].query, _staged(messages)
        if any(each.is_replay for each in results):
            done = {each.task for each in results if each.is_finished}
            exactly_once.finish_replay(self._options, driver, batchId, staged, done)
        elif staged:
            if any(each.follows_other_query for each in results):
                exactly_once.finish_previous_query(self._options)
            exactly_once.commit(self._options, driver, Decision(query, batchId, tuple(staged)))

    @plain_errors()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if not self._options.is_exactly_once:
            return
        exactly_once.abort(self._options, _staged(messages))
        exactly_once.abort_all(self._options)


def _task() -> tuple[int, int, Mapping[str, str]]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    return context.partitionId(), context.attemptNumber(), context._localProperties or {}


def _staged(messages: list[WriterCommitMessage | None]) -> list[StagedTransaction]:
    return [
        each.staged
        for each in messages
        if isinstance(each, TaskWritten) and each.staged is not None
    ]


def _drain(iterator: Iterator[Any]) -> None:
    for _ in iterator:
        pass
