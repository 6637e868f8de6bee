"""Running source tasks: poll, transform, convert, and write records with their source offsets.

    task.poll ─► transforms ─► converters ─► one transaction: records + offsets ─► task.commit

The offset storage is authoritative. Any error ends the run, and the next one resumes from the
stored offsets (`task_thread` decides when). A zombie's transactions fail, because the next run
initializes the same transactional ID before it reads the offsets.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.base.errors import UserError
from ottla.client.errors import RecordTooLarge, TransactionAborted
from ottla.connect.api import Offsets, Polled, RetriableError, SourceConnector, SourceTask
from ottla.connect.column_pipeline import LARGE_BYTES, TopicTable, to_table, transformed
from ottla.connect.columns import MANY_RECORDS, NotInColumns, has_columns
from ottla.connect.data import ConnectRecord
from ottla.connect.offset_storage import encode, offset_key
from ottla.connect.pipeline import Row, StageFailed
from ottla.connect.retrying import retried
from ottla.connect.task_context import TaskContext
from ottla.connect.topics import make_topics

logger = logging.getLogger(__name__)

WAIT_S = 0.1
"""Maximum time that a task may wait in `poll`. Stopping the task may take as long."""
WRITES = 3
"""Number of attempts at a transaction that is aborted, for example when leaders move."""


Part = list[Row] | TopicTable


class SourceRun:
    """One run of a source task, until it stops or fails."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._config = context.config
        self._topics: set[str] = set()

    def run(self, stopping: threading.Event, started: Callable[[], None]) -> None:
        """Run until `stopping` is set; raise on errors that end the run."""
        from ottla.client.producer.producer import Producer

        context = self._context
        context.offset_storage.create_topic(
            context.client("admin") | context.offset_storage_client()
        )
        producer = Producer(profile=context.producer())
        try:
            known = context.offset_storage.offsets(
                context.offset_storage_client(), context.namespace
            )
            offsets = known or context.first_offsets
            context.on_offsets(offsets)
            task = self._make_task()
            try:
                task.start(list(offsets))
                started()
                while not stopping.is_set():
                    self._poll_once(task, producer, stopping)
            finally:
                task.stop()
        finally:
            producer.close(0)

    def _make_task(self) -> SourceTask:
        connector = self._config.connector
        if not isinstance(connector, SourceConnector):
            raise UserError(f"Connector {self._config.name} is not a source.")
        return connector.make_task(self._context.settings)

    def _poll_once(self, task: SourceTask, producer: Any, stopping: threading.Event) -> None:
        polled = retried(self._context, stopping, lambda: task.poll(WAIT_S))
        if not polled:
            return
        parts = retried(self._context, stopping, lambda: self._converted(polled))
        self._make_topics(parts)
        self._write(producer, parts, polled.offsets)
        self._context.on_offsets(polled.offsets)
        try:
            task.commit(polled.offsets)
        except RetriableError as error:
            # The records are stored; the next commit includes these offsets.
            logger.warning(
                "task %s could not acknowledge its source offsets: %s", self._context.id, error
            )

    def _write(self, producer: Any, parts: Sequence[Part], offsets: Offsets) -> None:
        for load_id in range(1, WRITES + 1):
            try:
                with producer.transaction():
                    for part in parts:
                        if isinstance(part, TopicTable):
                            _send_table(producer, part)
                        else:
                            _send_rows(producer, part, self._too_large)
                    for partition, offset in offsets:
                        key = offset_key(self._context.namespace, partition)
                        producer.send(self._context.offset_storage.topic, encode(offset), key=key)
                return
            except TransactionAborted as error:
                if load_id == WRITES:
                    raise
                logger.warning(
                    "task %s retries an aborted transaction: %s", self._context.id, error
                )

    def _make_topics(self, parts: Iterable[Part]) -> None:
        topics = sorted(set().union(*map(_topics, parts)))
        new = [topic for topic in topics if topic not in self._topics]
        client = self._context.client("admin") | self._context.offset_storage_client()
        for group, members in self._config.topic_creation.shares(new):
            make_topics(client, members, group.partitions, group.replication_factor, group.configs)
        self._topics.update(new)
        for topic in topics:
            self._context.on_topic(topic)

    def _converted(self, polled: Polled) -> list[Part]:
        """Transform and convert, in the order of the poll."""
        parts: list[Part] = [self._rows(polled.records)] if polled.records else []
        for batch in polled.columns:
            try:
                done = transformed(self._config.chain, batch.columns)
                if done is not None:
                    parts.append(to_table(self._config.conversion, done))
            except NotInColumns as reason:
                logger.debug(
                    "task %s processes a batch record by record: %s", self._context.id, reason
                )
                parts.append(self._rows(batch.records()))
        return parts

    def _rows(self, records: Sequence[ConnectRecord]) -> list[Row]:
        rows = []
        chain, conversion = self._config.chain, self._config.conversion
        for record in records:
            try:
                done = chain.apply(record)
                if done is not None:
                    rows.append(conversion.to_row(done))
            except StageFailed as failure:
                self._failed(failure, record)
        return rows

    def _too_large(self, row: Row, error: RecordTooLarge) -> None:
        self._failed(StageFailed("KAFKA_PRODUCE", self, error), row)

    def _failed(self, failure: StageFailed, record: Row | ConnectRecord) -> None:
        policy = self._config.policy
        message = policy.tolerated(self._config.name, failure, record)
        if policy.logs:
            logger.error("%s", message)


def _topics(part: Part) -> set[str]:
    return {part.topic} if isinstance(part, TopicTable) else {row.topic for row in part}


def _send_rows(
    producer: Any, rows: Sequence[Row], on_too_large: Callable[[Row, RecordTooLarge], None]
) -> None:
    """Send rows to a producer: many similar ones as columns, others singly.

    Columns are encoded several times faster. They require rows of one topic without headers,
    explicit partitions or timestamps, and none so large that a broker might reject it.
    """
    if len(rows) >= MANY_RECORDS and has_columns() and _are_alike(rows):
        _send_columns(producer, rows)
        return
    for row in rows:
        try:
            producer.send(
                row.topic, row.value, key=row.key, headers=row.headers or None,
                partition=row.partition, timestamp=row.timestamp_ms,
            )  # fmt: skip
        except RecordTooLarge as error:
            on_too_large(row, error)


def _send_table(producer: Any, rows: TopicTable) -> None:
    there = {name: name for name in ("key", "timestamp") if name in rows.table.column_names}
    producer.send_table(rows.topic, rows.table, value="value", **there)


def _are_alike(rows: Sequence[Row]) -> bool:
    topic = rows[0].topic
    return all(
        row.topic == topic
        and not row.headers
        and row.partition is None
        and row.timestamp_ms is None
        and len(row.value or b"") + len(row.key or b"") < LARGE_BYTES
        for row in rows
    )


def _send_columns(producer: Any, rows: Sequence[Row]) -> None:
    import pyarrow as pa

    values = pa.array([row.value for row in rows], pa.binary())
    keys = pa.array([row.key for row in rows], pa.binary())
    if keys.null_count == len(rows):
        producer.send_table(rows[0].topic, pa.table({"value": values}), value="value")
        return
    table = pa.table({"key": keys, "value": values})
    producer.send_table(rows[0].topic, table, key="key", value="value")
