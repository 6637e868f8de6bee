"""An application: a name, a cluster, and what is built on its topics.

The name is the consumer group that shows how far it is, and part of its checkpoint's path and of
its transactional ids: two applications must not share one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError
from ottla.streams.checkpoint import default_state_dir
from ottla.streams.checks import failing_softly
from ottla.streams.dsl import Stream
from ottla.streams.errors import TopologyError, listed, refused
from ottla.streams.plan.explain import explain, topology
from ottla.streams.plan.nodes import BadRecords, Failures, Node, Printed, Sink, Source, ancestors
from ottla.streams.plan.picture import picture
from ottla.streams.plan.tracing import Traced, trace
from ottla.streams.serdes import Bytes, DeadLetter, Serde, String, source_serde
from ottla.streams.table import GlobalTable, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.streams.running import Running
    from ottla.streams.store import Store

BAD_RECORDS = ("stop", "drop")
DEFAULT_BATCH_RECORDS = 2_000_000
"""Seconds of work: what a stop in the middle of a batch costs, and a bound for memory."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class App:
    """`state_dir` holds checkpoints; `client` has more properties of the connection
    (`security.protocol` and so on); `master` and `spark` are for the Spark session. `failures`: a
    record for which a Python function raises stops the application, or goes to the topic of a
    `DeadLetter` and is left out; functions with state stop it in any case.
    `max_records_per_batch` bounds a micro-batch, of each topic (None: all there is).
    `operator_metrics` counts the rows that come out of every operator."""

    def __init__(
        self,
        name: str,
        bootstrap: str = "localhost:9092",
        *,
        state_dir: str | Path | None = None,
        client: Mapping[str, str] | None = None,
        master: str | None = None,
        spark: Mapping[str, str] | None = None,
        failures: str | DeadLetter = "stop",
        max_records_per_batch: int | None = DEFAULT_BATCH_RECORDS,
        operator_metrics: bool = True,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise TopologyError(
                f"App name {name!r}: letters, digits, dots, underscores and dashes, please"
            )
        self.name = name
        self.bootstrap = bootstrap
        self.client = dict(client or {})
        self.master = master
        self.spark_settings = dict(spark or {})
        self.state_dir = str(state_dir or default_state_dir())
        if failures != "stop" and not isinstance(failures, DeadLetter):
            raise TopologyError(f"failures={failures!r}; there are stop, st.DeadLetter(topic)")
        self.failures = failures
        if max_records_per_batch is not None and max_records_per_batch < 1:
            raise TopologyError(
                f"max_records_per_batch={max_records_per_batch}: at least 1, please"
            )
        self.max_records_per_batch = max_records_per_batch
        self.operator_metrics = operator_metrics
        self._sinks: list[Sink] = []
        self._stores: dict[str, Store] = {}

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return (*self._sinks, *self._failures())

    def _failures(self) -> Iterator[Sink]:
        """A sink for the records for which functions raise, if some may."""
        if not isinstance(self.failures, DeadLetter):
            return
        found = {
            id(node): node
            for sink in self._sinks
            for node in ancestors(sink)
            if getattr(getattr(node, "function", None), "fails_softly", False)
        }
        if found:
            failed = Failures(Bytes.shape, Bytes.shape, tuple(found.values()))
            topic = self.failures.topic
            yield Sink(failed.key, failed.value, failed, topic, Bytes, Bytes, False)

    def _as_configured(self, node: Node) -> Node:
        return failing_softly(node) if isinstance(self.failures, DeadLetter) else node

    def stream(
        self,
        topic: str,
        *,
        value: Serde = Bytes,
        key: Serde = String,
        time: Callable[..., Any] | None = None,
        start: str = "earliest",
        bad_records: str | DeadLetter = "stop",
    ) -> Stream:
        """A topic's records. `time` is where event time comes from, if not from the records'
        timestamps: a function to a timestamp or ms. `start` is where a new application begins.
        `bad_records` that cannot be parsed stop the application, are dropped, or go to the topic
        of a `DeadLetter`."""
        source = _source(topic, key, value, time, start, bad_records, is_table=False)
        if isinstance(bad_records, DeadLetter):
            bad = BadRecords(Bytes.shape, Bytes.shape, source)
            name = bad_records.topic
            self._add(Sink(bad.key, bad.value, bad, name, Bytes, Bytes, has_window_in_key=False))
        return Stream(self, source)

    def table(
        self, topic: str, *, value: Serde, key: Serde = String, bad_records: str = "stop"
    ) -> Table:
        """A topic as a changelog: the latest value of each key; null deletes."""
        source = _source(topic, key, value, None, "earliest", bad_records, is_table=True)
        return Table(self, source)

    def global_table(
        self, topic: str, *, value: Serde, key: Serde = String, bad_records: str = "stop"
    ) -> GlobalTable:
        """A topic as a table that records can look into by any key: `stream.join(table, on=…)`."""
        return GlobalTable(_source(topic, key, value, None, "earliest", bad_records, is_table=True))

    def from_df(self, rows: DataFrame, *, key: str = "key", time: str = "timestamp") -> Stream:
        """A streaming DataFrame as a stream: `key` and `time` name its columns, and all others are
        the value; one that is called value, if it is the only one, is the value itself."""
        from ottla.streams.mixing import source_of

        return Stream(self, source_of(rows, key, time))

    def explain(self) -> str:
        """What is done, and by what: columns, Python, state."""
        return explain(self._checked())

    def topology(self) -> str:
        """What is done, without by what: another one is refused over an old checkpoint."""
        return topology(self._checked())

    def picture(self) -> str:
        """The topology as a picture: an SVG document."""
        return picture(self._checked())

    def _repr_svg_(self) -> str | None:
        return self.picture() if self._sinks else None

    def start(self, *, http: str | None = None) -> Running:
        """Start, and return at once."""
        from ottla.streams.run import start

        return start(self, http=http)

    def run(self, *, http: str | None = None) -> None:
        """Start, and run until it is stopped (Ctrl-C, SIGTERM) or fails, which ends the program
        with a sentence. Queries that lose a broker or an executor are started again. `http` is an
        address (`localhost:7070`) to answer questions on: see `ottla.streams.rest`."""
        from ottla.streams import launch

        launched = launch.current()
        if launched is not None:
            launched.rule(self)
            launched.ran.append(self)
            http = launched.http or http
            if launched.only_builds:
                return
        from ottla.streams.run import run

        try:
            run(self, http=http)
        except UserError as error:
            if launched is not None:
                raise
            sys.stderr.write(f"{error}\n")
            raise SystemExit(error.exit_code) from None

    def store(self, topic: str) -> Store:
        """The table that is written to a topic, to look things up in, while the application runs
        and when it does not."""
        from ottla.streams.store import open_store

        if topic not in self._stores:
            self._stores[topic] = open_store(self, topic)
        return self._stores[topic]

    def close_stores(self) -> None:
        """Files and connections of the stores; they open again when they are asked."""
        while self._stores:
            self._stores.popitem()[1].close()

    def reset(self) -> None:
        """Forget everything: checkpoints, state, stores, the offsets of its groups, internal
        topics. The next run begins where a new application would. Topics that it writes stay as
        they are; old records of those that it reads again (`through`) are passed over."""
        from ottla.streams.reset import reset

        reset(self)

    def _checked(self) -> tuple[Sink, ...]:
        if not self._sinks:
            raise TopologyError(f"App {self.name!r} writes nothing: end a stream with to(topic)")
        return self.sinks

    def _add(self, sink: Sink) -> None:
        taken = [topic for each in self._sinks for topic in (each.topic, each.late_topic)]
        if isinstance(self.failures, DeadLetter):
            taken.append(self.failures.topic)
        if sink.topic in taken or (sink.late_topic is not None and sink.late_topic in taken):
            raise refused("to", f"topic {sink.topic!r} is written already: merge the two streams")
        read = [each.topic for each in ancestors(sink) if isinstance(each, Source)]
        if sink.topic in read and not isinstance(sink, Printed):
            raise refused("to", f"topic {sink.topic!r} is read here, too: it would never end")
        self._sinks.append(sink)


def from_df(app: App, rows: DataFrame, *, key: str = "key", time: str = "timestamp") -> Stream:
    """A streaming DataFrame as a stream: see `App.from_df`."""
    return app.from_df(rows, key=key, time=time)


def _source(
    topic: str,
    key: Serde,
    value: Serde,
    time: Callable[..., Any] | None,
    start: str,
    bad_records: str | DeadLetter,
    *,
    is_table: bool,
) -> Source:
    operator = "table" if is_table else "stream"
    if not topic or type(topic) is not str:
        raise refused(operator, f"{topic!r} is no topic")
    key, value = source_serde(operator, "key", key), source_serde(operator, "value", value)
    if start not in ("earliest", "latest"):
        raise refused(operator, f"start={start!r}; there are earliest, latest")
    if bad_records not in BAD_RECORDS and (is_table or not isinstance(bad_records, DeadLetter)):
        valid = listed(BAD_RECORDS) + ("" if is_table else ", st.DeadLetter(topic)")
        raise refused(operator, f"bad_records={bad_records!r}; there are {valid}")
    made = None if time is None else trace("time", time, key.shape, value.shape)
    if isinstance(made, Traced) and getattr(made.outcome, "type", "") not in (
        "timestamp",
        "bigint",
        None,
    ):
        raise refused("time", "the function must return a timestamp or ms as a bigint")
    return Source(key.shape, value.shape, topic, key, value, made, start, bad_records, is_table)
