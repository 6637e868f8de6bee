"""A sink connector as a Structured Streaming query: `format("ottla")` into the connector's task.

Each batch comes to the driver, in the order of its partitions, and is handed to the task with its
number (see `api` on what that means). A record that fails goes to the dead letter queue before the
batch counts as done, so it may be there twice after a crash and is never missing."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.connect.api import RetriableError, SinkTask
from ottla.connect.config import ConnectorConfig
from ottla.connect.data import Record
from ottla.connect.pipeline import Row, StageFailed, context_headers

logger = logging.getLogger(__name__)

MAX_BATCH_RECORDS = 50_000
"""Unless consumer.override.max.poll.records says otherwise."""
PUT_RECORDS = 5_000
"""The most that `put` is handed at once."""
FIRST_DELAY_MS = 300


class DeadLetters:
    """The topic for records that failed, made when the first one does."""

    def __init__(
        self, config: ConnectorConfig, client: Mapping[str, str], admin: Mapping[str, str]
    ) -> None:
        self._config = config
        self._client = dict(client)
        self._admin = dict(admin)
        self._producer: Any = None

    def send(self, failure: StageFailed, row: Row) -> None:
        policy = self._config.policy
        headers = list(row.headers)
        if policy.queue_headers:
            headers += context_headers(self._config.name, 0, failure, row)
        self._open().send(policy.queue, row.value, key=row.key, headers=headers)

    def flush(self) -> None:
        if self._producer is not None:
            self._producer.flush()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _open(self) -> Any:
        if self._producer is None:
            from ottla.client.producer.blocking import Producer

            replication = self._config.policy.queue_replication
            make_topics(self._admin, [self._config.policy.queue], 1, replication)
            self._producer = Producer(profile=self._client)
        return self._producer


def make_topics(
    client: Mapping[str, str], topics: list[str], partitions: int = -1, replication: int = -1
) -> None:
    """Those that are not there; -1: as the brokers' defaults say."""
    from ottla.client.admin import Admin, NewTopic

    with Admin(profile=dict(client)) as admin:
        there = set(admin.list_topics())
        for topic in topics:
            if topic in there:
                continue
            try:
                admin.create_topics(NewTopic(topic, partitions, replication))
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise UserError(f"The topic {topic} cannot be made: {error}") from error


class SinkBatches:
    """What Spark calls with each batch."""

    def __init__(
        self, config: ConnectorConfig, task: SinkTask, directory: Path, letters: DeadLetters
    ) -> None:
        self._config = config
        self._task = task
        self._letters = letters
        self._directory = directory
        self._is_started = False
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        self.topics: set[str] = set()

    def __call__(self, rows: Any, batch: int) -> None:
        try:
            self._run(rows, batch)
        except BaseException as error:
            self.failure = error
            raise

    def stop(self) -> None:
        self._stopping.set()
        self._task.stop()
        self._letters.close()

    def _run(self, rows: Any, batch: int) -> None:
        if not self._is_started:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._task.start(self._directory)
            self._is_started = True
        table = rows.toArrow()
        self._retried(lambda: self._task.begin(batch))
        records: list[Record] = []
        for row in rows_of(table):
            self.topics.add(row.topic)
            record = self._record(row)
            if record is not None:
                records.append(record)
            if len(records) >= PUT_RECORDS:
                self._put(records)
                records = []
        if records:
            self._put(records)
        self._letters.flush()
        self._retried(self._task.end)

    def _record(self, row: Row) -> Record | None:
        try:
            return self._config.chain.apply(self._config.conversion.to_record(row))
        except StageFailed as failure:
            policy = self._config.policy
            said = policy.describe(self._config.name, failure, row)
            if not policy.tolerates:
                raise UserError(f"{said}; errors.tolerance=all would go on without it.") from None
            if policy.logs:
                logger.error("%s", said)
            if policy.queue:
                self._letters.send(failure, row)
            return None

    def _put(self, records: list[Record]) -> None:
        self._retried(lambda: self._task.put(records))

    def _retried(self, do: Callable[[], None]) -> None:
        """What may pass is tried again, for `errors.retry.timeout`."""
        policy, delay_ms = self._config.policy, FIRST_DELAY_MS
        until = time.monotonic() + policy.retry_timeout_ms / 1000
        while True:
            try:
                return do()
            except RetriableError as error:
                is_over = policy.retry_timeout_ms >= 0 and time.monotonic() >= until
                if is_over or self._stopping.is_set():
                    raise
                logger.warning("connector %s tries again: %s", self._config.name, error)
            self._stopping.wait(min(delay_ms, policy.retry_delay_max_ms) / 1000)
            delay_ms *= 2


def rows_of(table: Any) -> Iterator[Row]:
    """In the order of their topics, partitions and offsets."""
    order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    for batch in table.sort_by(order).to_batches(max_chunksize=PUT_RECORDS):
        columns = batch.to_pydict()
        for topic, partition, key, value, headers, timestamp, offset in zip(
            columns["topic"], columns["partition"], columns["key"], columns["value"],
            columns["headers"], columns["timestamp_ms"], columns["offset"], strict=True,
        ):  # fmt: skip
            told = tuple((each["key"], each["value"]) for each in headers or ())
            yield Row(topic, partition, key, value, told, timestamp, offset)


def sink_reader(spark: Any, config: ConnectorConfig, client: Mapping[str, str]) -> Any:
    """The rows of the topics, as a stream."""
    from pyspark.sql import functions

    properties = dict(client)
    reset = properties.pop("auto.offset.reset", "earliest")
    limit = properties.pop("max.poll.records", str(MAX_BATCH_RECORDS))
    options = {f"kafka.{name}": value for name, value in properties.items()}
    options.setdefault("kafka.isolation.level", "read_committed")
    if config.settings["topics"]:
        options["subscribe"] = ",".join(config.settings["topics"])
    else:
        options["subscribePattern"] = config.settings["topics.regex"]
    options |= {
        "startingOffsets": reset,
        "group.id": group_id(config),
        "resumeFrom": "group",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": limit,
    }
    rows = spark.readStream.format("ottla").options(**options).load()
    timestamp = functions.unix_millis("timestamp").alias("timestamp_ms")
    return rows.select("topic", "partition", "offset", "key", "value", "headers", timestamp)


def group_id(config: ConnectorConfig) -> str:
    return config.client("consumer").get("group.id") or f"connect-{config.name}"
