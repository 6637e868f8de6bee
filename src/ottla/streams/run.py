"""An application, running: one Spark query per sink, each with a checkpoint of its own.

    STATE_DIR/APP/TOPIC/            Spark's checkpoint of the query that writes TOPIC
    STATE_DIR/APP/TOPIC.topology    what it was made for; another topology is refused (local paths)

Output is exactly-once: see `ottla.spark` for streams that are only added to, `update_sink` for
changes of tables."""

from __future__ import annotations

import difflib
import logging
import re
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError
from ottla.streams.errors import TopologyError
from ottla.streams.internal_topics import create_internal_topics
from ottla.streams.plan.explain import topology
from ottla.streams.plan.nodes import Printed, Sink, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.streams.app import App

logger = logging.getLogger(__name__)

COLUMNS = "key BINARY, value BINARY, timestamp TIMESTAMP"
ORIGIN = "topic STRING, partition INT, offset BIGINT"
TABLE_COLUMNS = f"{COLUMNS}, offset BIGINT"
LOOK_EVERY_S = 0.5
"""How often a stop that was asked for, or a query that failed, is looked for."""


_PLAN_FOLLOWS = "=== Streaming Query ==="
_WRAPPERS = ("py4j.", "pyspark.")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ([^\n]+)")
_ONLY_WHERE = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR", "TASK_WRITE_FAILED")
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Failed): .+$", re.MULTILINE)


class QueryFailed(UserError):
    """A query of the application ended with an error."""


@dataclass(frozen=True)
class QueryStatus:
    topic: str
    """That it writes."""
    is_active: bool
    batch: int | None
    """The last that was finished."""
    input_rows_per_second: float
    message: str


class Running:
    """A started application."""

    def __init__(self, app: App, queries: Sequence[tuple[Sink, StreamingQuery]]) -> None:
        self._app = app
        self._queries = queries

    def status(self) -> list[QueryStatus]:
        return [_status(sink, query) for sink, query in self._queries]

    def process_all_available(self) -> None:
        """Wait until all that is in the topics now has been processed and written."""
        for sink, query in self._queries:
            _told(self._app, sink, query.processAllAvailable)

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until a query fails, which raises, or all have stopped: then true."""
        waited_s = 0.0
        while timeout_s is None or waited_s < timeout_s:
            for sink, query in self._queries:
                if not query.isActive:
                    _told(self._app, sink, query.awaitTermination)
            if not any(query.isActive for _, query in self._queries):
                return True
            threading.Event().wait(LOOK_EVERY_S)
            waited_s += LOOK_EVERY_S
        return False

    def stop(self) -> None:
        """Stop after the batches that are under way; what is done stays done."""
        for _, query in self._queries:
            query.stop()


def start(app: App, spark: SparkSession | None = None) -> Running:
    sinks = app._checked()
    for sink in sinks:
        _check_topology(app, sink)
    create_internal_topics(app)
    if spark is None:
        import ottla.spark

        settings: dict[str, Any] = {"spark.sql.session.timeZone": "UTC", **app.spark_settings}
        spark = ottla.spark.session(app.master, app_name=app.name, **settings)
    started: list[tuple[Sink, StreamingQuery]] = []
    try:
        started.extend((sink, _start(app, sink, spark)) for sink in sinks)
    except BaseException:
        Running(app, started).stop()
        raise
    return Running(app, started)


def run(app: App) -> None:
    running = start(app)
    asked = threading.Event()

    def stop(signum: int, frame: FrameType | None) -> None:
        asked.set()

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not asked.is_set() and not running.await_termination(LOOK_EVERY_S):
            pass
    finally:
        running.stop()
        for each, handler in before.items():
            signal.signal(each, handler)


def _start(app: App, sink: Sink, spark: SparkSession) -> StreamingQuery:
    from ottla.streams.compile.frames import sink_frame
    from ottla.streams.print_sink import PrintSink
    from ottla.streams.update_sink import UpdateSink

    rows = sink_frame(sink, ClusterTopics(app, sink, spark))
    options = {
        **_connection(app),
        # Rows that name their topic go there: late ones.
        **({} if "topic" in rows.columns else {"topic": sink.topic}),
        "kafka.transactional.id": f"ottla-streams-{app.name}-{sink.topic}",
    }
    writer = rows.writeStream.queryName(f"{app.name}-{sink.topic}")
    writer = writer.option("checkpointLocation", _checkpoint(app, sink))
    if isinstance(sink, Printed):
        mode = "update" if sink.emits_changes else "append"
        return writer.outputMode(mode).foreachBatch(PrintSink(sink.topic)).start()
    if sink.emits_changes:
        return writer.outputMode("update").foreachBatch(UpdateSink(options)).start()
    return writer.format("ottla").options(**options).outputMode("append").start()


class ClusterTopics:
    """Sources as topics of the application's cluster."""

    def __init__(self, app: App, sink: Sink, spark: SparkSession) -> None:
        self._spark = spark
        self._options = _connection(app)
        self._group = app.name if len(app.sinks) == 1 else f"{app.name}-{sink.topic}"

    def stream(self, source: Source, *, with_origin: bool = False) -> DataFrame:
        options = {
            **self._options,
            "subscribe": source.topic,
            "startingOffsets": source.start,
            "kafka.group.id": self._group,
            "kafka.isolation.level": "read_committed",
        }
        reader = self._spark.readStream.format("ottla").schema(
            f"{COLUMNS}, {ORIGIN}" if with_origin else COLUMNS
        )
        return reader.options(**options).load()

    def table(self, source: Source) -> DataFrame:
        options = {
            **self._options,
            "subscribe": source.topic,
            "kafka.isolation.level": "read_committed",
        }
        return self._spark.read.format("ottla").schema(TABLE_COLUMNS).options(**options).load()


def _connection(app: App) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": app.bootstrap,
        **{f"kafka.{name}": value for name, value in app.client.items()},
    }


# ----------------------------------------------------------------------------------- checkpoints


def _checkpoint(app: App, sink: Sink) -> str:
    return f"{app.state_dir.rstrip('/')}/{app.name}/{sink.topic}"


def _check_topology(app: App, sink: Sink) -> None:
    """An old checkpoint's state means something for its own topology only."""
    checkpoint = _checkpoint(app, sink)
    if "://" in checkpoint:
        return
    path, now = Path(f"{checkpoint}.topology"), topology([sink]) + "\n"
    if not Path(checkpoint).exists() or not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(now)
        return
    before = path.read_text()
    if before != now:
        lines = difflib.unified_diff(before.splitlines(), now.splitlines(), "before", "now", n=0)
        changes = "\n".join(line for line in lines if not line.startswith("@@"))
        raise TopologyError(
            f"App {app.name!r}, topic {sink.topic!r}: the checkpoint in {checkpoint} was made by "
            f"another topology. Change it back, give the app another name, or delete the "
            f"checkpoint to begin anew.\n{changes}"
        )


# ---------------------------------------------------------------------------------------- status


def _status(sink: Sink, query: StreamingQuery) -> QueryStatus:
    progress = query.lastProgress
    return QueryStatus(
        sink.topic,
        query.isActive,
        None if progress is None else int(progress["batchId"]),
        0.0 if progress is None else float(progress["inputRowsPerSecond"]),
        str(query.status["message"]),
    )


def _told(app: App, sink: Sink, wait: Callable[[], object]) -> None:
    """Wait, and say in one sentence what a query failed of."""
    from pyspark.errors import StreamingQueryException

    try:
        wait()
    except StreamingQueryException as error:
        raise QueryFailed(
            f"App {app.name!r}, topic {sink.topic!r}: {cause_of(str(error))}"
        ) from None


def cause_of(text: str) -> str:
    """Of what Spark tells at length, the one line that says it: the last exception of Python's, the
    first condition of Spark's that names more than where it happened, or the first line."""
    told = text.partition(_PLAN_FOLLOWS)[0]
    raised = [line for line in _RAISED.findall(told) if not line.startswith(_WRAPPERS)]
    if raised:
        return str(raised[-1]).strip()
    for condition, sentence in _CONDITION.findall(told):
        if condition not in _ONLY_WHERE:
            return f"[{condition}] {sentence}".strip()
    return told.strip().partition("\n")[0]
