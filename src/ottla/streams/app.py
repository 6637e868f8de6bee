"""An application: a name, a cluster, and what is built on its topics.

The name is the consumer group that shows how far it is, and part of its checkpoint's path and of
its transactional ids: two applications must not share one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.streams.checks import failing_softly
from ottla.streams.dsl import Stream
from ottla.streams.errors import TopologyError, listed, refused
from ottla.streams.plan.explain import explain, topology
from ottla.streams.plan.nodes import BadRecords, Failures, Node, Printed, Sink, Source, ancestors
from ottla.streams.plan.tracing import Traced, trace
from ottla.streams.serdes import Bytes, DeadLetter, Serde, String
from ottla.streams.table import GlobalTable, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.streams.run import Running

BAD_RECORDS = ("stop", "drop")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class App:
    """`state_dir` holds checkpoints; `client` has more properties of the connection
    (`security.protocol` and so on); `master` and `spark` are for the Spark session. `failures`: a
    record for which a Python function raises stops the application, or goes to the topic of a
    `DeadLetter` and is left out; functions with state stop it in any case."""

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
        self._sinks: list[Sink] = []

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
        return topology(self._checked())

    def start(self) -> Running:
        """Start, and return at once."""
        from ottla.streams.run import start

        return start(self)

    def run(self) -> None:
        """Start, and run until it is stopped (Ctrl-C, SIGTERM) or fails."""
        from ottla.streams.run import run

        run(self)

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


def default_state_dir() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "ottla" / "streams"


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
    for name, serde in (("key", key), ("value", value)):
        if not isinstance(serde, Serde):
            raise refused(
                operator, f"{name}={serde!r} is no serde: st.Json(…), st.String, st.Bytes, st.Long"
            )
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
