"""Driver for tests: runs a topology on given records, without a broker, as the same Spark queries.

    driver = TopologyDriver(app, spark)
    driver.send("orders", {"item": "tea", "amount": 12.5}, key="1", at="2026-01-01T00:00:05Z")
    assert driver.read("totals") == [...]

The records that were sent since the last `process()` or `read()` are one micro-batch of each query
that reads them. A test thus decides which records are late: stream time advances between batches. A
query that reads the output of others sees it in the same batch, because it plans nothing until they
are done. Queries keep running between batches; a batch takes a fraction of a second.

Sources are files that Spark watches. A table is read by a small data source that lists its files in
each batch, as `format("ottla")` reads its topic in each batch.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.deprecation import warn_deprecated
from ottla.base.errors import UserError
from ottla.spark.spark_connect import is_connect
from ottla.streams.durations import Duration, duration_ms
from ottla.streams.errors import TopologyError, listed
from ottla.streams.operators.aggregations import PythonAggregated, windows_of
from ottla.streams.operators.processing import Processed
from ottla.streams.operators.topics import BadRecords, Sink, Source
from ottla.streams.plan.node import ancestors
from ottla.streams.progress import CLOCK
from ottla.streams.query_failures import cause_of
from ottla.streams.query_settings import NO_DATA_BATCHES, temporary_settings
from ottla.streams.serdes import default_serde, split_windowed_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ottla.streams.app import App

Time = datetime | str | int
"""A datetime, ISO 8601, or milliseconds since the epoch. Without a time zone, UTC."""


@dataclass(frozen=True)
class TestRecord:
    """A record that the topology wrote, with JSON parsed."""

    __test__ = False  # pytest would otherwise take it for a class of tests

    key: Any
    """Decoded key, without its window."""
    value: Any
    """Decoded value."""
    timestamp_ms: int
    """Timestamp of the record, in milliseconds since the epoch."""
    window_ms: tuple[int, ...] = ()
    """Numbers at the end of a windowed key: its start, or the end and start of a session."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Headers of the record."""


def __getattr__(name: str) -> Any:
    if name == "Record":
        warn_deprecated("ottla.streams.testing.Record", "Use TestRecord.")
        return TestRecord
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class TopologyDriver:
    """Driver that runs a topology on given records, without a broker.

        with TopologyDriver(app, spark) as driver:
            driver.send("orders", {"item": "tea", "amount": 12.5}, key="1", at=5_000)
            assert driver.read("totals") == [...]

    The records that were sent since the last `process` or `read` form one micro-batch. Stream time
    advances between micro-batches, so a test decides which records are late.

    Args:
        app: The application.
        spark: The Spark session to run it in.
    """

    def __init__(self, app: App, spark: SparkSession) -> None:
        if is_connect(spark):
            raise UserError(
                "TopologyDriver holds Spark between micro-batches, which Spark Connect cannot do. "
                "Use a session without Spark Connect: ottla.spark.session('local[2]')"
            )
        self._app = app
        self._spark = spark
        self._home = Path(tempfile.mkdtemp(prefix="ottla-streams-"))
        self._sinks = dependency_order(app.application().require_sinks())
        self._sources = {source.topic: source for source in _sources(self._sinks)}
        self._pending: dict[str, list[tuple[bytes | None, bytes | None, datetime]]] = {}
        self._offset = 0
        self._wall_clock_ms = time.time_ns() // 1_000_000
        self._written: dict[str, list[TestRecord]] = {
            topic: [] for sink in self._sinks for topic in (sink.topic, sink.late_topic) if topic
        }
        self._queries: list[StreamingQuery] = []
        for topic in (*self._sources, CLOCK):
            (self._home / "topics" / topic).mkdir(parents=True)

    def __enter__(self) -> TopologyDriver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(self, topic: str, value: Any, *, key: Any = None, at: Time = 0) -> None:
        """Add a record to the next micro-batch.

        Args:
            topic: Topic that the topology reads.
            value: Value, encoded with the serde of the source. Bytes are not encoded.
            key: Key, encoded likewise.
            at: Timestamp: a datetime, ISO 8601, or milliseconds since the epoch.

        Raises:
            TopologyError: The topology does not read the topic.
        """
        source = self._sources.get(topic)
        if source is None:
            raise TopologyError(
                f"The topology does not read topic {topic!r}; topics: {listed(self._sources)}"
            )
        row = (
            source.key_serde.encode(key),
            source.value_serde.encode(value),
            _time(at),
        )
        self._pending.setdefault(topic, []).append(row)

    def advance_wall_clock(self, by: Duration) -> None:
        """Advance the wall clock. Timers that expire run with the next micro-batch.

        The clock starts at the current time and changes only through this method.

        Args:
            by: Duration.
        """
        self._wall_clock_ms += duration_ms(by, name="by")

    def process(self) -> None:
        """Run the records that were sent as one micro-batch, through all queries."""
        if not self._queries:
            self._queries = [self._start(sink) for sink in self._sinks]
        self._process_first(len(self._queries))

    def _process_first(self, count: int) -> None:
        """Process the first `count` queries, in order.

        Each query is held until its whole input is available.
        """
        if count == 0:
            for topic, rows in self._pending.items():
                self._append(topic, rows)
            self._pending.clear()
            if any(map(_has_clock, self._sinks)):
                self._tick()
            return
        sink, query = self._sinks[count - 1], self._queries[count - 1]
        _with_planning_paused(query, lambda: self._process_first(count - 1))
        self._process(sink, query)
        if _has_clock(sink):
            # The batch has advanced stream time; a second one runs the timers that this made due.
            self._tick()
            self._process(sink, query)

    def read(self, topic: str) -> list[TestRecord]:
        """Process what was sent, and return the records written to a topic since the last read.

        Args:
            topic: Topic that the topology writes.

        Raises:
            TopologyError: The topology does not write the topic.
        """
        if topic not in self._written:
            raise TopologyError(
                f"The topology does not write topic {topic!r}; topics: {listed(self._written)}"
            )
        self.process()
        found, self._written[topic] = self._written[topic], []
        return found

    def close(self) -> None:
        """Stop the queries and delete their files."""
        for query in self._queries:
            query.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    def _start(self, sink: Sink) -> StreamingQuery:
        from ottla.streams.compile.frames import sink_frame
        from ottla.streams.file_topics import FileTopics

        rows = sink_frame(sink, FileTopics(self._spark, self._home / "topics"))

        def collect(batch: DataFrame, batch_id: int) -> None:
            found = [row.asDict() for row in batch.collect()]
            for row in found:
                topic = row.pop("topic", sink.topic)
                self._written[topic].append(_record(sink, topic, **row))
            if sink.topic in self._sources and found:
                self._append(sink.topic, [_as_row(**row) for row in found])

        mode = "update" if sink.emits_changes else "append"
        writer = rows.writeStream.outputMode(mode).foreachBatch(collect)
        writer = writer.option("checkpointLocation", str(self._home / "state" / sink.topic))
        # With a clock, every batch needs a tick, so Spark must not start batches of its own.
        with temporary_settings(
            self._spark, {NO_DATA_BATCHES: "false"} if _has_clock(sink) else {}
        ):
            return writer.start()

    def _process(self, sink: Sink, query: StreamingQuery) -> None:
        from pyspark.errors import StreamingQueryException

        try:
            query.processAllAvailable()
        except StreamingQueryException as error:
            raise UserError(
                f"App {self._app.name!r}, topic {sink.topic!r}: {cause_of(str(error))}"
            ) from None

    def _append(
        self, topic: str, rows: Sequence[tuple[bytes | None, bytes | None, datetime]]
    ) -> None:
        """Write rows to a temporary file, then rename it into place."""
        import pyarrow as pa

        keys, values, times = zip(*rows, strict=True)
        offsets = range(self._offset, self._offset + len(rows))
        self._offset += len(rows)
        table = pa.table(
            {
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
                "topic": pa.array([topic] * len(rows), pa.string()),
                "partition": pa.array([0] * len(rows), pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
            }
        )
        self._write(topic, table)

    def _tick(self) -> None:
        import pyarrow as pa

        self._offset += 1
        self._write(CLOCK, pa.table({"ms": pa.array([self._wall_clock_ms], pa.int64())}))

    def _write(self, topic: str, table: Any) -> None:
        import pyarrow.parquet as pq

        home = self._home / "topics" / topic
        temporary = home / f".{self._offset}"
        pq.write_table(table, temporary)
        temporary.rename(home / f"{self._offset:012}.parquet")


def dependency_order(sinks: Sequence[Sink]) -> list[Sink]:
    """Order the sinks so that each precedes the readers of its topic. Cycles keep their order."""
    left, found = list(sinks), list[Sink]()
    while left:
        written = {each.topic for each in left}
        ready = [
            each for each in left if not written & {source.topic for source in _sources([each])}
        ]
        chosen = ready or left[:1]
        found += chosen
        left = [each for each in left if not any(each is one for one in chosen)]
    return found


def _sources(sinks: Sequence[Sink]) -> Iterator[Source]:
    for node in (node for sink in sinks for node in ancestors(sink)):
        if isinstance(node, BadRecords):
            yield node.source
        elif isinstance(node, Source):
            yield node


def _has_clock(sink: Sink) -> bool:
    return any(
        isinstance(node, Processed) and node.clock_ms is not None for node in ancestors(sink)
    )


def _time(at: Time) -> datetime:
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    if isinstance(at, datetime):
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return datetime.fromtimestamp(at / 1000, UTC)


def _as_row(
    key: Any, value: Any, timestamp: datetime, headers: Any = ()
) -> tuple[bytes | None, bytes | None, datetime]:
    return _bytes(key), _bytes(value), timestamp.astimezone(UTC)


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def _record(
    sink: Sink, topic: str, key: Any, value: Any, timestamp: datetime, headers: Any = ()
) -> TestRecord:
    data, window_ms = _bytes(key), tuple[int, ...]()
    serdes = sink.key_serde, sink.value_serde
    if topic == sink.late_topic:
        input_node = next(
            each for each in ancestors(sink) if isinstance(each, PythonAggregated)
        ).parent
        serdes = default_serde(input_node.key), default_serde(input_node.value)
    elif sink.has_window_in_key and data is not None:
        is_session = any(each.is_session for each in windows_of(sink))
        data, window_ms = split_windowed_key(data, is_session=is_session)
    return TestRecord(
        serdes[0].decode(data),
        serdes[1].decode(_bytes(value)),
        round(timestamp.timestamp() * 1000),
        window_ms,
        tuple((each["key"], bytes(each["value"])) for each in headers or ()),
    )


def _with_planning_paused(query: StreamingQuery, action: Callable[[], None]) -> None:
    """Run `action` while the query plans no micro-batch. Exceptions of `action` are raised here.

    Spark asks the sources of a query for new data one after the other, so data that is added
    between two of these calls is seen by some sources only. Spark holds a lock of the query while
    it asks; its own tests take this lock for the same reason (`withProgressLocked`), and so does
    this function. The lock exists in classic Spark sessions, not in Spark Connect, and needs
    callbacks from the JVM, which `foreachBatch` has enabled.
    """
    wrapper: Any = query._jsq
    called = _Function0(action)
    wrapper.streamingQuery().withProgressLocked(called)
    if called.error is not None:
        raise called.error


class _Function0:
    """Scala function that calls a Python one.

    It keeps an exception on the Python side, since the JVM would replace it with its own error.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self.error: BaseException | None = None

    def apply(self) -> None:
        try:
            self._action()
        except BaseException as error:
            self.error = error

    class Java:
        """Java interfaces of this object, for py4j."""

        implements = ("scala.Function0",)
