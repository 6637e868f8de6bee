"""One connector of a worker: its query, its state, and its way back after a failure.

    RUNNING ──fails──► FAILED ──after a pause──► RUNNING …
       │  ▲                                       PAUSED, STOPPED: asked for; the query is ended
       ▼  │
     PAUSED, STOPPED

Kafka never starts failed tasks again by itself; here they are, `task.restart.*` says how often. The
pause doubles with each failure in a row, and one that ran for a minute has a clean slate."""

from __future__ import annotations

import json
import logging
import time
from enum import Enum
from pathlib import Path
from typing import Any

from ottla.base.errors import KafkaError, UserError
from ottla.connect.api import Json, Offsets, SinkConnector, SourceConnector
from ottla.connect.config import ConnectorConfig
from ottla.connect.failures import reason_of, restart_delay_ms
from ottla.connect.offsets import OffsetStore, from_json, to_json
from ottla.connect.worker_config import WorkerConfig

logger = logging.getLogger(__name__)

CLEAN_AFTER_S = 60.0
ADMIN_TIMEOUT_MS = "15000"


class State(Enum):
    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


class RunningConnector:
    """Not for several threads at once: the worker sees to that."""

    def __init__(self, config: ConnectorConfig, worker: WorkerConfig, store: OffsetStore) -> None:
        self.config = config
        self.state = State.UNASSIGNED
        self.trace: str | None = None
        self._worker = worker
        self._store = store
        self._query: Any = None
        self._batches: Any = None
        self._forgotten: set[str] = set()
        self._failures = 0
        self._started_at = 0.0
        self._restart_at: float | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def task_count(self) -> int:
        """None run in a stopped connector, as in Kafka."""
        connector = self.config.connector
        if self.state is State.STOPPED:
            return 0
        if isinstance(connector, SourceConnector):
            return len(connector.task_settings(self.config.settings["tasks.max"]))
        return 1

    # -------------------------------------------------------------------------- its life

    def start(self, spark: Any) -> None:
        """What goes wrong is told by its state."""
        self.end_query()
        self._restart_at = None
        self._started_at = time.monotonic()
        logger.info("connector %s is started", self.name)
        try:
            self._query = self._start_sink(spark) if not self.config.is_source \
                else self._start_source(spark)  # fmt: skip
        except Exception as error:
            # Of Spark's or of brokers: a connector must not end the worker.
            self._failed(_sentence(error))
            return
        self.state, self.trace = State.RUNNING, None

    def look_after(self, spark: Any) -> None:
        """Now and then: has it failed, is it time to start it again?"""
        if self.state is State.RUNNING and not self._query.isActive:
            failure = self._batches.failure if self._batches is not None else None
            error = failure or self._query.exception()
            self._failed(_sentence(error) if error is not None else "its query was ended")
        elif self.state is State.RUNNING:
            self.note_offsets()
        elif self._restart_at is not None and time.monotonic() >= self._restart_at:
            self.start(spark)

    def pause(self) -> None:
        self._rest(State.PAUSED)

    def stop(self) -> None:
        self._rest(State.STOPPED)

    def end_query(self) -> None:
        if self._query is not None:
            try:
                self._query.stop()
                self.note_offsets()
            except Exception as error:
                # Spark's own trouble; a query that lives on is locked out of topics by the next.
                logger.error("connector %s did not end well: %s", self.name, _sentence(error))
            self._query = None
        if self._batches is not None:
            self._batches.stop()
            self._batches = None

    def _rest(self, state: State) -> None:
        self.end_query()
        self._restart_at = None
        self._failures = 0
        self.state, self.trace = state, None
        logger.info("connector %s is %s", self.name, state.value.lower())

    def _failed(self, reason: str) -> None:
        self.end_query()
        if time.monotonic() - self._started_at > CLEAN_AFTER_S:
            self._failures = 0
        self._failures += 1
        self.state, self.trace = State.FAILED, reason
        limit = self._worker.settings["task.restart.max.attempts"]
        if 0 <= limit < self._failures:
            logger.error("connector %s failed and stays so: %s", self.name, reason)
            return
        pause_ms = restart_delay_ms(
            self._failures,
            self._worker.settings["task.restart.backoff.ms"],
            self._worker.settings["task.restart.backoff.max.ms"],
        )
        self._restart_at = time.monotonic() + pause_ms / 1000
        logger.error(
            "connector %s failed and is started again in %d ms: %s", self.name, pause_ms, reason
        )

    # ------------------------------------------------------------------------- its query

    def _start_source(self, spark: Any) -> Any:
        from ottla.connect.source_query import source_reader

        directory = self._directory()
        start = to_json(self._store.entry(self.name).offsets)
        rows = source_reader(spark, self.config, self._worker.given, str(directory), start)
        client = self.client("producer")
        client.setdefault("transactional.id", f"connect-{self.name}-{self._store.identity}")
        options = {f"kafka.{name}": value for name, value in client.items()}
        return (
            rows.writeStream.format("ottla")
            .options(**options)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .queryName(self.name)
            .start()
        )

    def _start_sink(self, spark: Any) -> Any:
        from ottla.connect.sink_query import DeadLetters, SinkBatches, make_topics, sink_reader

        connector = self.config.connector
        assert isinstance(connector, SinkConnector)
        topics = self.config.settings["topics"]
        if topics:
            make_topics(self.client("admin"), topics)
        directory = self._directory()
        letters = DeadLetters(self.config, self.client("producer"), self.client("admin"))
        task = connector.make_task(connector.settings)
        self._batches = SinkBatches(self.config, task, directory, letters)
        rows = sink_reader(spark, self.config, self.client("consumer"))
        return (
            rows.writeStream.foreachBatch(self._batches)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .queryName(self.name)
            .start()
        )

    def _directory(self) -> Path:
        directory = self._store.directory(self.name)
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def client(self, kind: str) -> dict[str, str]:
        found = self._worker.client(kind) | self.config.client(kind)
        if kind == "admin":
            found.setdefault("default.api.timeout.ms", ADMIN_TIMEOUT_MS)
        return found

    # ----------------------------------------------------------------------- where it is

    @property
    def worker_id(self) -> str:
        listeners = self._worker.listeners
        host, port = listeners[0] if listeners else ("", 0)
        return f"{host or 'localhost'}:{port}"

    def replace_offsets(self, offsets: Offsets) -> None:
        """Only while it is stopped."""
        self._store.replace(self.name, offsets)

    def forget_topics(self) -> None:
        self._forgotten = {*self._forgotten, *self.topics()}

    def note_offsets(self) -> None:
        end = self._end_offset()
        if self.config.is_source and end is not None:
            self._store.update(self.name, from_json(end["offsets"]))

    def source_offsets(self) -> Offsets:
        self.note_offsets()
        return self._store.entry(self.name).offsets

    def topics(self) -> list[str]:
        """Those that records came from or went to, as far as this run knows."""
        if not self.config.is_source:
            found = self._batches.topics if self._batches is not None else set()
        else:
            end = self._end_offset()
            found = set(end["topics"]) if end is not None else set()
        return sorted(found - self._forgotten)

    def _end_offset(self) -> Json | None:
        """Of the last batch that is done."""
        progress = self._query.lastProgress if self._query is not None else None
        if progress is None:
            return None
        told = progress["sources"][0]["endOffset"]
        found = json.loads(told) if isinstance(told, str) else told
        return found if isinstance(found, dict) else None


def _sentence(error: BaseException) -> str:
    if isinstance(error, UserError | KafkaError):
        return str(error)
    return reason_of(str(error) or type(error).__name__)
