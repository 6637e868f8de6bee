"""Queries of a started application, and their recovery after a failure.

    active ──ends with an error──► failed ──transient──► restarted after a pause
                                      └─────otherwise──► the application ends with a message

Only `run` restarts queries, with `supervise`. After `start`, the caller gets the failure.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ottla.streams.application import Application
from ottla.streams.checkpoint import AppLock
from ottla.streams.operators.topics import Sink
from ottla.streams.progress import QueryStatus, queries_html, query_status, with_inferred_rows
from ottla.streams.query_failures import QueryFailed, cause_of, is_transient, pause_s
from ottla.streams.store import Stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.streams.http_server import ResourceServer

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.5
QueryStarter = Callable[[Application, Sink, "SparkSession"], "StreamingQuery"]


@dataclass
class _Query:
    sink: Sink
    spark: StreamingQuery
    failures: int = 0
    """Failures in a row, without a finished batch between them."""
    restarts: int = 0
    restart_at_s: float | None = None
    batch: int | None = None
    """Last finished batch at the time of the last failure."""


class Running:
    """A started application."""

    _all: ClassVar[weakref.WeakSet[Running]] = weakref.WeakSet()

    def __init__(
        self,
        app: Application,
        spark: SparkSession,
        starter: QueryStarter,
        lock: AppLock,
        stores: Stores,
        *,
        owns_session: bool,
    ) -> None:
        self._app = app
        self.spark = spark
        self.owns_session = owns_session
        self.server: ResourceServer | None = None
        self._starter = starter
        self._lock = lock
        self._stores = stores
        self._queries: list[_Query] = []
        Running._all.add(self)

    @classmethod
    def stop_idle(cls, app: Application) -> None:
        """End the runs of the application in this process whose queries have all ended."""
        for each in list(cls._all):
            is_same = each._app.name == app.name and each._app.state_dir == app.state_dir
            if is_same and not any(query.spark.isActive for query in each._queries):
                each.stop()

    def start(self, sinks: Sequence[Sink]) -> None:
        for sink in sinks:
            self._queries.append(_Query(sink, self._starter(self._app, sink, self.spark)))

    def status(self) -> list[QueryStatus]:
        """Return the state, progress and failures of each query."""
        return [_status(query, self._app.operator_metrics) for query in self._queries]

    def _repr_html_(self) -> str:
        return queries_html(self.status(), caption=f"Application {self._app.name}")

    def process_all_available(self) -> None:
        """Wait until all records that are in the topics now are processed and written."""
        for query in self._queries:
            self._wait_for_query(query.sink, query.spark.processAllAvailable)

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until all queries have stopped.

        Args:
            timeout_s: Seconds to wait. None waits without limit.

        Returns:
            True if all queries have stopped, False after the timeout.

        Raises:
            QueryFailed: A query has failed.
        """
        waited_s = 0.0
        while timeout_s is None or waited_s < timeout_s:
            for query in self._queries:
                if not query.spark.isActive:
                    self._wait_for_query(query.sink, query.spark.awaitTermination)
            if not any(query.spark.isActive for query in self._queries):
                return True
            threading.Event().wait(POLL_INTERVAL_S)
            waited_s += POLL_INTERVAL_S
        return False

    def stop(self) -> None:
        """Stop all queries. The next start runs a batch that was interrupted again."""
        if self.server is not None:
            self.server.close()
            self.server = None
        try:
            for query in self._queries:
                query.spark.stop()
        finally:
            self._stores.close()
            self._lock.release()

    # ---------------------------------------------------------------------------- looking after

    def supervise(self, report: Callable[[str], None]) -> None:
        """Restart queries that failed with a transient error.

        Raises:
            QueryFailed: A query failed with another error, or was stopped from outside.
        """
        for query in self._queries:
            if query.restart_at_s is not None:
                self._restart(query, report)
            elif not query.spark.isActive:
                self._handle_failure(query, _failure(query.spark), report)

    def _handle_failure(
        self, query: _Query, text: str | None, report: Callable[[str], None]
    ) -> None:
        if text is None:
            raise QueryFailed(f"{self._label(query.sink)}: the query was stopped from outside")
        if not is_transient(text):
            raise QueryFailed(f"{self._label(query.sink)}: {cause_of(text)}")
        batch = _last_batch(query.spark)
        query.failures = 1 if batch != query.batch else query.failures + 1
        query.batch = batch
        pause = pause_s(query.failures)
        query.restart_at_s = time.monotonic() + pause
        report(f"{self._label(query.sink)}: {cause_of(text)}; restarting in {pause:.0f} s")
        logger.debug("%s", text)

    def _restart(self, query: _Query, report: Callable[[str], None]) -> None:
        if query.restart_at_s is None or time.monotonic() < query.restart_at_s:
            return
        from pyspark.errors import PySparkException

        query.restart_at_s = None
        query.restarts += 1
        try:
            query.spark = self._starter(self._app, query.sink, self.spark)
        except PySparkException as error:
            # Spark asks the sources for their schema before it creates the query.
            self._handle_failure(query, str(error), report)

    def _label(self, sink: Sink) -> str:
        return f"App {self._app.name!r}, topic {sink.topic!r}"

    def _wait_for_query(self, sink: Sink, wait: Callable[[], object]) -> None:
        """Wait for a query, and report its failure in one sentence."""
        from pyspark.errors import StreamingQueryException

        try:
            wait()
        except StreamingQueryException as error:
            raise QueryFailed(f"{self._label(sink)}: {cause_of(str(error))}") from None


def _failure(query: StreamingQuery) -> str | None:
    error = query.exception()
    return None if error is None else str(error)


def _last_batch(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    return None if progress is None else int(progress["batchId"])


def _status(query: _Query, counts: bool) -> QueryStatus:
    last_progress = query.spark.lastProgress
    progress: dict[str, Any] | None = (
        None if last_progress is None else json.loads(last_progress.json)
    )
    status = query_status(
        query.sink.topic,
        progress,
        is_active=query.spark.isActive,
        message=str(query.spark.status["message"]),
        restarts=query.restarts,
    )
    if not counts:
        return status
    operators = with_inferred_rows(query.sink, status.operators, status.sources)
    return replace(status, operators=operators)
