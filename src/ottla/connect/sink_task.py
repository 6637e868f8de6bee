"""Running sink tasks: numbered batches of records, each recorded in the cluster before it begins.

    poll ─► offset storage: batch n, start and end ─► begin(n), put …, end ─► … ─► done

A run that finds an unfinished batch first redelivers the same records to the task under the same
number. The entry of a batch implies that the previous one is done; a separate entry is written only
when no more records arrive. Offsets are committed for the group `connect-NAME`, so that Kafka's
tools show the lag. The group has no members: the tasks divide the partitions by task number, and
zombies are fenced because the next run initializes the same transactional ID.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ottla.base.errors import KafkaError, UserError
from ottla.base.types import TopicPartition
from ottla.connect.api import SinkConnector, SinkTask
from ottla.connect.column_pipeline import to_columns, transformed
from ottla.connect.columns import MANY_RECORDS, NotInColumns, has_columns
from ottla.connect.config import ConnectorConfig
from ottla.connect.data import ConnectRecord
from ottla.connect.dead_letters import DeadLetters
from ottla.connect.offset_storage import SINK_TASK, SinkPosition, encode, offset_key
from ottla.connect.pipeline import Row, StageFailed
from ottla.connect.retrying import retried
from ottla.connect.sink_batch import (
    DONE_POLL_S,
    PUT_RECORDS,
    Records,
    SinkBatch,
    TopicPart,
    poll_records,
    poll_tables,
)
from ottla.connect.task_context import TaskContext
from ottla.connect.topics import make_topics

logger = logging.getLogger(__name__)

MAX_BATCH_RECORDS = 10_000
"""Default of consumer.override.max.poll.records."""
IDLE_POLL_S = 0.2
"""Time to wait for records when idle. Stopping the task may take as long."""
LOOK_FOR_TOPICS_S = 5.0
NOTE_DRIFT_S = 0.5
CONSUMER_DEFAULTS = {
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "max.poll.records": str(MAX_BATCH_RECORDS),
}
Positions = dict[TopicPartition, int]


def group_id(config: ConnectorConfig) -> str:
    return config.client("consumer").get("group.id") or f"connect-{config.name}"


class SinkRun:
    """One run of a sink task, until it stops or fails."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._config = context.config
        self._letters = DeadLetters(context)
        self._position = SinkPosition()
        self._next: Positions = {}
        """Offsets to commit for the group once the current batch is done."""
        self._is_done = True
        self._assigned: set[TopicPartition] | None = None
        """Assigned partitions. None forces an assignment, at the start and after a redelivery."""
        self._refresh_at = self._drift_at = 0.0
        self._delivered: dict[int, tuple[ConnectRecord, Row]] = {}
        """Records of the current batch that the task may report, by the record's `id`."""
        self._is_ending = False
        self._in_columns = False

    def run(self, stopping: threading.Event, started: Callable[[], None]) -> None:
        """Run until `stopping` is set; raise on errors that end the run."""
        from ottla.client.consumer.consumer import Consumer
        from ottla.client.producer.producer import Producer

        context = self._context
        context.offset_storage.create_topic(
            context.client("admin") | context.offset_storage_client()
        )
        topics = self._config.settings["topics"]
        if topics:
            make_topics(context.client("admin") | context.offset_storage_client(), topics)
        producer = Producer(profile=context.producer())
        try:
            with Consumer(profile=self._consumer()) as consumer:
                self._work(producer, consumer, stopping, started)
        finally:
            self._letters.close()
            producer.close(0)

    def _consumer(self) -> dict[str, str]:
        always = {"group.id": group_id(self._config), "enable.auto.commit": "false"}
        return CONSUMER_DEFAULTS | self._context.client("consumer") | always

    def _work(
        self,
        producer: Any,
        consumer: Any,
        stopping: threading.Event,
        started: Callable[[], None],
    ) -> None:
        context = self._context
        known = context.offset_storage.sink_positions(
            context.offset_storage_client(), context.namespace
        )
        before = known.get(context.id.task, SinkPosition())
        self._position = replace(before, epoch=before.epoch + 1, worker=context.worker_name)
        task = self._make_task()
        task.epoch = self._position.epoch
        task.reporter = self._report
        task.is_takeover = bool(before.worker) and before.worker != context.worker_name
        if task.is_takeover:
            # Store the epoch now, so that the next owner sees it even if this run gets no further.
            self._record_position(producer, {})
        try:
            context.directory.mkdir(parents=True, exist_ok=True)
            task.start(context.directory)
            committed = self._committed(consumer, before.start)
            if before.is_interrupted(committed):
                self._redeliver(producer, consumer, task, stopping)
            self._assign(consumer)
            started()
            while not stopping.is_set():
                self._poll_once(producer, consumer, task, stopping)
            self._record_done(producer)
        finally:
            task.stop()

    def _make_task(self) -> SinkTask:
        connector = self._config.connector
        if not isinstance(connector, SinkConnector):
            raise UserError(f"Connector {self._config.name} is not a sink.")
        return connector.make_task(self._context.settings)

    # ------------------------------------------------------------------------------- batches

    def _poll_once(
        self, producer: Any, consumer: Any, task: SinkTask, stopping: threading.Event
    ) -> None:
        polled = self._polled(consumer)
        if not len(polled):
            self._record_drift(producer, consumer)
            if time.monotonic() >= self._refresh_at:
                self._assign(consumer)
            return
        first = polled.first_offsets()
        start = {tp: self._next.get(tp, offset) for tp, offset in first.items()}
        end = {tp: consumer.position(tp) for tp in start}
        self._position = replace(
            self._position, batch=self._position.batch + 1, start=start, end=end
        )
        self._record_position(producer, self._next | start)
        self._next |= end
        self._is_done = False
        self._deliver(task, polled, stopping)
        self._in_columns = task.takes_columns and has_columns() and len(polled) >= MANY_RECORDS

    def _polled(self, consumer: Any) -> SinkBatch:
        """Poll what is available, up to `max.poll.records`; a single fetch may return less."""
        wait_s = IDLE_POLL_S if self._is_done else DONE_POLL_S
        poll = poll_tables if self._in_columns else poll_records
        return poll(consumer, wait_s, consumer.config.max_poll_records)

    def _redeliver(
        self, producer: Any, consumer: Any, task: SinkTask, stopping: threading.Event
    ) -> None:
        """Redeliver the interrupted batch."""
        logger.info("task %s: redelivering batch %d", self._context.id, self._position.batch)
        self._record_position(producer, dict(self._position.start))
        wanted = dict(self._position.end)
        consumer.assign(wanted)
        for tp, offset in self._position.start.items():
            consumer.seek(tp, offset)
        records: list[Any] = []
        while wanted and not stopping.is_set():
            records += consumer.poll(IDLE_POLL_S)
            wanted = {tp: end for tp, end in wanted.items() if consumer.position(tp) < end}
        if wanted:
            return
        self._next |= self._position.end
        self._is_done = False
        self._deliver(task, Records(records).before(self._position.end), stopping)

    def _deliver(self, task: SinkTask, polled: SinkBatch, stopping: threading.Event) -> None:
        batch = self._position.batch
        for topic in sorted({tp.topic for tp in polled.first_offsets()}):
            self._context.on_topic(topic)
        self._delivered, self._is_ending = {}, False
        retried(self._context, stopping, lambda: task.begin(batch))
        for part in polled.parts():
            if not self._put_columns(task, part, stopping):
                self._put_rows(task, part.rows(), stopping)
        self._letters.flush()
        self._is_ending = True
        retried(self._context, stopping, task.end)
        self._delivered = {}

    def _put_columns(self, task: SinkTask, part: TopicPart, stopping: threading.Event) -> bool:
        """Pass a part to the task in columns; return False if it must go record by record."""
        data = part.columns()
        if data is None:
            return False
        chain, conversion = self._config.chain, self._config.conversion
        try:
            columns = transformed(chain, to_columns(conversion, chain, *data))
            if columns is not None:
                retried(self._context, stopping, partial(task.put_columns, columns))
        except NotInColumns as reason:
            logger.debug("task %s processes a batch record by record: %s", self._context.id, reason)
            return False
        return True

    def _put_rows(self, task: SinkTask, rows: Sequence[Row], stopping: threading.Event) -> None:
        for first in range(0, len(rows), PUT_RECORDS):
            share = rows[first : first + PUT_RECORDS]
            part = retried(self._context, stopping, partial(self._records, share))
            if part:
                retried(self._context, stopping, partial(task.put, part))

    def _records(self, rows: Sequence[Row]) -> list[ConnectRecord]:
        found = []
        for row in rows:
            record = self._record(row)
            if record is not None:
                found.append(record)
                if self._config.policy.tolerates:
                    self._delivered[id(record)] = (record, row)
        return found

    def _record(self, row: Row) -> ConnectRecord | None:
        try:
            return self._config.chain.apply(self._config.conversion.to_record(row))
        except StageFailed as failure:
            self._failed(failure, row)
            return None

    def _report(self, record: ConnectRecord, error: Exception) -> None:
        """Handle a record that the task rejects."""
        name = type(self._config.connector).__name__
        _, row = self._delivered.get(id(record), (None, None))
        if row is None and self._config.policy.tolerates:
            raise TypeError(f"a task of {name} reported a record that was not delivered to it")
        self._failed(StageFailed("TASK_PUT", name, error), row or record)
        if self._is_ending:
            # The task may regard the batch as done after reporting, so the letter must be written.
            self._letters.flush()

    def _failed(self, failure: StageFailed, row: Row | ConnectRecord) -> None:
        policy = self._config.policy
        message = policy.tolerated(self._config.name, failure, row)
        if policy.logs:
            logger.error("%s", message)
        if policy.queue and isinstance(row, Row):
            self._letters.send(failure, row)

    # ------------------------------------------------------------------------ offset storage

    def _record_drift(self, producer: Any, consumer: Any) -> None:
        """Record the last batch as done, because no more records have arrived.

        This includes offsets of transaction markers, which would otherwise show as a lag of one.
        """
        moved = {tp: consumer.position(tp) for tp in self._next}
        if moved != self._next and time.monotonic() >= self._drift_at:
            self._drift_at = time.monotonic() + NOTE_DRIFT_S
            self._next, self._is_done = moved, False
        self._record_done(producer)

    def _record_done(self, producer: Any) -> None:
        if not self._is_done:
            self._position = replace(self._position, start={}, end={})
            self._record_position(producer, self._next)
            self._is_done = True

    def _record_position(self, producer: Any, offsets: Mapping[TopicPartition, int]) -> None:
        context = self._context
        key = offset_key(context.namespace, {SINK_TASK: context.id.task})
        with producer.transaction():
            producer.send(context.offset_storage.topic, encode(self._position.to_json()), key=key)
            producer.send_offsets(dict(offsets), group_id(self._config))

    # ---------------------------------------------------------------------------- partitions

    def _assign(self, consumer: Any) -> None:
        """Assign this task's partitions, as topics and partitions may have changed."""
        self._refresh_at = time.monotonic() + LOOK_FOR_TOPICS_S
        wanted = set(self._partitions(consumer))
        if wanted == self._assigned:
            return
        self._assigned = wanted
        committed = self._committed(consumer, wanted - self._next.keys())
        consumer.assign(sorted(wanted))
        self._next = {tp: at for tp, at in (committed | self._next).items() if tp in wanted}
        for tp, offset in self._next.items():
            consumer.seek(tp, offset)

    def _partitions(self, consumer: Any) -> Iterable[TopicPartition]:
        number, count = self._context.id.task, self._context.task_count
        for topic in self._wanted_topics():
            try:
                found = consumer.partitions_for(topic)
            except KafkaError as error:
                logger.warning("task %s: %s", self._context.id, error)
                continue
            first = zlib.crc32(topic.encode())
            yield from (tp for tp in found if (first + tp.partition) % count == number)

    def _wanted_topics(self) -> list[str]:
        topics = self._config.settings["topics"]
        if topics:
            return list(topics)
        from ottla.client.admin import Admin

        pattern = re.compile(self._config.settings["topics.regex"])
        admin_client = self._context.client("admin") | self._context.offset_storage_client()
        with Admin(profile=admin_client) as admin:
            there = sorted(admin.list_topics())
        own = self._context.offset_storage.topic
        return [name for name in there if pattern.fullmatch(name) and name != own]

    def _committed(self, consumer: Any, partitions: Iterable[TopicPartition]) -> Positions:
        wanted = sorted(partitions)
        if not wanted:
            return {}
        found = consumer.committed(*wanted)
        return {tp: data.offset for tp, data in found.items() if data is not None}
