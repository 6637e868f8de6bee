"""Start and run an application: one Spark query per sink, each with its own checkpoint.

    start    Check the topologies, take the lock, start the queries, and return.
    run      Do the same and stay: report progress, restart queries that lost a broker or an
             executor, stop on SIGINT and SIGTERM.

A query may stop between batches or in the middle of one. The next start repeats an interrupted
batch from the same offsets, and its results are written exactly once. See `checkpoint` for the
files that are kept, `ottla.spark` and `batch_sinks` for exactly once.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition
from ottla.spark.spark_connect import active_session, is_connect, server_address, starts_server
from ottla.streams.application import Application
from ottla.streams.checkpoint import (
    AppLock,
    FileSystem,
    LocalFiles,
    check_topology,
    checkpoint,
    files_of_session,
    is_remote,
    source_names,
)
from ottla.streams.errors import TopologyError
from ottla.streams.evolution import CLOCK_NAME, SourceNames, shape_of
from ottla.streams.http_resources import Resources
from ottla.streams.http_server import ResourceServer
from ottla.streams.internal_topics import create_internal_topics
from ottla.streams.operators.topics import Printed, Sink, Source
from ottla.streams.plan.node import Node, ancestors
from ottla.streams.progress import fully_read_sources, observed_name, status_line
from ottla.streams.query_failures import QueryFailed, cause_of
from ottla.streams.query_settings import (
    NAMED_SOURCES,
    query_settings,
    temporary_settings,
    without_user_settings,
)
from ottla.streams.running import Running
from ottla.streams.state_partitions import move_state
from ottla.streams.store import Stores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

logger = logging.getLogger(__name__)

COLUMNS = "key BINARY, value BINARY, timestamp TIMESTAMP"
ORIGIN = "topic STRING, partition INT, offset BIGINT"
TABLE_COLUMNS = f"{COLUMNS}, offset BIGINT"
DEFAULT_MASTER = "local[*,8]"
"""All cores of this machine, with up to 8 attempts per task: as on a cluster, a task survives the
loss of its worker or of a broker."""
REAL_TIME_MASTER = "local[64,8]"
"""Master of real-time applications: each partition occupies a core of Spark's as long as the query
runs, and mostly waits. These are threads, so there may be more of them than cores."""
POLL_INTERVAL_S = 0.5
"""Interval at which a stop request or a failed query is detected."""
PROGRESS_INTERVAL_S = 10.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def start(
    app: Application,
    spark: SparkSession | None = None,
    *,
    stores: Stores | None = None,
    http: str | None = None,
) -> Running:
    """Start an application.

    Args:
        app: The application.
        spark: The session to use. None takes the active one, or creates one.
        stores: Open stores of the application, closed when it stops.
        http: Address on which to serve status and stores (see `http_resources`).
    """
    sinks = app.require_sinks()
    stores = Stores() if stores is None else stores
    Running.stop_idle(app)
    lock = AppLock(app.state_dir, app.name)
    lock.acquire()
    try:
        files = _files_before_session(app) if spark is None else _files(app, spark)
        if files is not None:
            _check_topologies(app, files)
        create_internal_topics(app)
        owns_session = spark is None and not _has_session()
        if spark is None:
            spark = session_for(app)
            if files is None:
                _check_topologies(app, _files(app, spark))
        _check_supported(app, spark)
    except BaseException:
        lock.release()
        raise
    running = Running(app, spark, _start_query, lock, stores, owns_session=owns_session)
    try:
        running.start(sinks)
        if http is not None:
            running.server = ResourceServer(http, Resources(app, stores, running.status))
    except BaseException:
        running.stop()
        raise
    return running


def run(app: Application, *, stores: Stores | None = None, http: str | None = None) -> None:
    stop_requested = threading.Event()
    with _stop_on_signals(stop_requested):
        _report(f"{app.name}: starting Spark")
        running = start(app, stores=stores, http=http)
        with _stop_on_signals(stop_requested), _report_lost_spark(app):
            # Set the handlers again: Spark has installed its own in the meantime.
            try:
                _supervise(app, running, stop_requested)
            finally:
                running.stop()
                if running.owns_session:
                    running.spark.stop()
    _report(f"{app.name}: stopped")


def _files_before_session(app: Application) -> FileSystem | None:
    """Return the file system of the checkpoints if it can be used before Spark has started."""
    return None if is_remote(app.state_dir) or uses_connect(app) else LocalFiles()


def _files(app: Application, spark: SparkSession) -> FileSystem:
    return files_of_session(app.state_dir, spark)


def _check_topologies(app: Application, files: FileSystem) -> None:
    for sink in app.sinks:
        change = check_topology(app, sink, files)
        if change is not None:
            parts = [
                f"{what} {', '.join(topics)}"
                for what, topics in (("also reads", change.gained), ("stops reading", change.lost))
                if topics
            ]
            logger.info("App %r, topic %r: %s", app.name, sink.topic, " and ".join(parts))


@contextmanager
def _report_lost_spark(app: Application) -> Iterator[None]:
    """Turn the loss of Spark's JVM or server into a `QueryFailed`; only a new process recovers."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, ConnectionError) as error:
        raise QueryFailed(
            f"App {app.name!r}: Spark's JVM has ended ({type(error).__name__}). Start the "
            "application again; it continues from its checkpoint."
        ) from None
    except PySparkException as error:
        raise QueryFailed(
            f"App {app.name!r}: Spark does not respond ({cause_of(str(error))}). Start the "
            "application again; it continues from its checkpoint."
        ) from None


def _supervise(app: Application, running: Running, stop_requested: threading.Event) -> None:
    topics = ", ".join(sink.topic for sink in app.sinks)
    _report(f"{app.name}: running on {running.spark.conf.get('spark.master')}, writing {topics}")
    if running.server is not None:
        _report(f"{app.name}: {running.server.url}")
    console = _Console()
    while not stop_requested.wait(POLL_INTERVAL_S):
        running.supervise(_report)
        console.show(running)


class _Console:
    """Progress report: at intervals, a line for each query that has finished a batch."""

    def __init__(self) -> None:
        self._shown: dict[str, int | None] = {}
        self._next_s = 0.0

    def show(self, running: Running) -> None:
        if time.monotonic() < self._next_s:
            return
        for status in running.status():
            if status.batch != self._shown.get(status.topic):
                self._shown[status.topic] = status.batch
                _report(status_line(status, time.strftime("%H:%M:%S")))
                self._next_s = time.monotonic() + PROGRESS_INTERVAL_S


def _report(text: str) -> None:
    """Write a message to standard error; standard output is for the program's own output."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def _stop_on_signals(stop_requested: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread handles signals; elsewhere, the caller stops the application
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        stop_requested.set()

    before = {each: signal.signal(each, stop) for each in STOP_SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


# ------------------------------------------------------------------------------------ the session


def _has_session() -> bool:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False  # `session_for` reports the missing package
    return SparkSession.getActiveSession() is not None


def uses_connect(app: Application) -> bool:
    """Return whether the application's session is one of Spark Connect."""
    if _has_session():
        return active_session() is not None
    return app.master is None and server_address(app.spark_settings) is not None


def session_for(app: Application) -> SparkSession:
    import ottla.spark
    from ottla.spark.spark_session import silence, submitted_master

    settings: dict[str, Any] = {"spark.sql.session.timeZone": "UTC"}
    master = app.master
    if uses_connect(app):
        if app.commit_interval is not None:
            raise UserError(
                f"App {app.name!r}: latency='real-time' does not work with Spark Connect, because "
                "Ottla cannot add its JAR to the server. Start the application with a Spark master."
            )
        if starts_server(server_address(app.spark_settings)):
            settings["spark.log.level"] = "OFF"
    else:
        master = master or os.environ.get("SPARK_MASTER") or submitted_master()
        if master is None and app.commit_interval is not None:
            master = REAL_TIME_MASTER
            settings["spark.sql.shuffle.partitions"] = os.cpu_count() or 1
        master = master or DEFAULT_MASTER
    settings |= app.spark_settings
    made = ottla.spark.session(master, app_name=app.name, **settings)
    if "spark.log.level" not in app.spark_settings:
        # Ottla reports the cause of a failure in one sentence; Spark would first log it at length.
        silence(made)
    return made


def _check_supported(app: Application, spark: SparkSession) -> None:
    printed = [sink.topic for sink in app.sinks if isinstance(sink, Printed)]
    if printed and is_connect(spark):
        raise TopologyError(
            f"App {app.name!r}: print({printed[0]!r}) would print on the Spark Connect server, "
            "where nobody sees it. Write a topic with to(topic) and read it with "
            "kafka-console-consumer, or use a session without Spark Connect."
        )


# ------------------------------------------------------------------------------------ the queries


def _start_query(app: Application, sink: Sink, spark: SparkSession) -> StreamingQuery:
    files = _files(app, spark)
    settings = without_user_settings(query_settings(sink), app, spark)
    if shape_of(sink) is not None:
        names = source_names(app, sink, files)
        settings[NAMED_SOURCES] = "false" if names is None else "true"

    def finish_batch() -> None:
        writer = _writer(app, sink, spark, source_names(app, sink, files))
        writer.trigger(availableNow=True).start().awaitTermination()

    with temporary_settings(spark, settings):
        move_state(app, sink, spark, files, finish_batch, _report)
        writer = _writer(app, sink, spark, source_names(app, sink, files))
        if app.commit_interval is not None:
            timed: Any = writer.trigger  # PySpark's types do not know realTime
            writer = timed(realTime=app.commit_interval)
        return writer.start()


def _writer(
    app: Application, sink: Sink, spark: SparkSession, names: SourceNames | None
) -> DataStreamWriter:
    """Compile a query, and return its writer. A trigger can be set before it is started."""
    from ottla.streams.batch_sinks import PrintSink, UpdateSink
    from ottla.streams.compile.frames import sink_frame
    from ottla.streams.compile.python_functions import real_time_calls

    with real_time_calls(app.commit_interval is not None):
        rows = sink_frame(sink, ClusterTopics(app, sink, spark, names))
    options = {
        **app.connection_options,
        # Rows with a `topic` column choose their topic: late records go to one of their own.
        **({} if "topic" in rows.columns else {"topic": sink.topic}),
        "kafka.transactional.id": f"ottla-streams-{app.name}-{sink.topic}",
    }
    writer = rows.writeStream.queryName(f"{app.name}-{sink.topic}")
    writer = writer.option("checkpointLocation", checkpoint(app, sink))
    if app.commit_interval is not None:
        return writer.format("ottla").options(**options).outputMode("update")
    if isinstance(sink, Printed):
        mode = "update" if sink.emits_changes else "append"
        return writer.outputMode(mode).foreachBatch(PrintSink(sink.topic))
    if sink.emits_changes:
        update = UpdateSink(options, checkpoint(app, sink))
        return writer.outputMode("update").foreachBatch(update)
    return writer.format("ottla").options(**options).outputMode("append")


class ClusterTopics:
    """Sources that are read from the topics of the application's cluster.

    Args:
        app: The application.
        sink: Sink of the query.
        spark: The session.
        names: Names of the query's sources, if Spark is to know them by name.
    """

    def __init__(
        self, app: Application, sink: Sink, spark: SparkSession, names: SourceNames | None = None
    ) -> None:
        self._spark = spark
        self._names = names
        self._bootstrap, self._client = app.bootstrap, app.client
        self._options = app.connection_options
        self._group = app.group_of(sink)
        self._limit = app.max_records_per_batch if app.commit_interval is None else None
        self._numbers = {id(node): at for at, node in enumerate(ancestors(sink), 1)}
        for each in fully_read_sources(sink):
            self._numbers.pop(id(each))
        self._counts = app.operator_metrics

    def stream(self, source: Source, *, with_origin: bool = False) -> DataFrame:
        options = {
            **self._options,
            "subscribe": source.topic,
            "startingOffsets": source.start,
            "kafka.group.id": self._group,
            "resumeFrom": "reset",
            "kafka.isolation.level": "read_committed",
        }
        if self._limit is not None:
            options["maxOffsetsPerTrigger"] = str(self._limit)
        reader = self._spark.readStream.format("ottla").schema(
            f"{COLUMNS}, {ORIGIN}" if with_origin else COLUMNS
        )
        if self._names is not None:
            name, starts = self._names.next_read(source.topic)
            reader = reader.name(name)
            if starts is not None:
                options["startingOffsets"] = json.dumps(self._with_new_partitions(starts))
        return reader.options(**options).load()

    def _with_new_partitions(self, starts: dict[str, Any]) -> dict[str, Any]:
        """Add the partitions that were created since a topic was lost, from their beginning."""
        from ottla.client.admin import Admin
        from ottla.spark.offsets import EARLIEST, from_json, to_json

        known = from_json(starts)
        topics = {tp.topic for tp in known}
        with Admin(self._bootstrap, profile=self._client) as admin:
            described = admin.describe_topics(*topics)
        partitions = [
            TopicPartition(topic, each.partition)
            for topic in topics
            for each in described[topic].partitions
        ]
        return to_json({tp: known.get(tp, EARLIEST) for tp in partitions})

    def table(self, source: Source) -> DataFrame:
        options = {
            **self._options,
            "subscribe": source.topic,
            "kafka.isolation.level": "read_committed",
        }
        return self._spark.read.format("ottla").schema(TABLE_COLUMNS).options(**options).load()

    def clock(self, every_ms: int) -> DataFrame:
        from ottla.streams.clock_source import EVERY_MS, WallClock

        self._spark.dataSource.register(WallClock)
        reader = self._spark.readStream.format(WallClock.name())
        if self._names is not None:
            reader = reader.name(CLOCK_NAME)
        return reader.option(EVERY_MS, str(every_ms)).load()

    def observed(self, node: Node, rows: DataFrame) -> DataFrame:
        """Count the rows that an operator emits, for `status()`."""
        # Only once: to Spark, a stream that is read twice is two streams, and names must be unique.
        number = self._numbers.pop(id(node), None)
        if not self._counts or number is None or node.is_one_to_one or not rows.isStreaming:
            return rows
        from pyspark.sql import functions as f

        return rows.observe(
            observed_name(number, node.describe()[0]), f.count(f.lit(1)).alias("rows")
        )
