"""Applications: a name, a cluster, and the topology built on the cluster's topics.

The name begins the consumer groups that show the application's progress, and is part of the path of
its checkpoint and of its transactional IDs. Two applications must not share a name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError
from ottla.streams.checkpoint import default_state_dir
from ottla.streams.checks import with_errors_caught
from ottla.streams.dsl import Stream
from ottla.streams.errors import TopologyError, listed, topology_error
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

BAD_RECORD_POLICIES = ("stop", "drop")
DEFAULT_BATCH_RECORDS = 2_000_000
"""Seconds of work; bounds a batch's memory, and the work lost by a stop in the middle of one."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class App:
    """Stream processing application: a name, a cluster and a topology.

        app = st.App("billing", "localhost:9092")
        orders = app.stream("orders", value=st.Json("item string, amount double"))
        orders.filter(lambda order: order.amount > 100).to("large-orders")
        app.run()

    Args:
        name: Name of the application, and prefix of its internal topics and groups.
        bootstrap: Broker addresses.
        state_dir: Directory for checkpoints.
        client: Further properties of the connection, such as `security.protocol`.
        master: Spark master, such as `local[4]`.
        spark: Settings of the Spark session.
        failures: `"stop"` stops the application when a Python function raises; a `DeadLetter`
            writes the record to its topic and continues. Stateful functions always stop it.
        max_records_per_batch: Maximum number of records of each topic in a micro-batch. None
            takes all that are available.
        operator_metrics: Count the rows that leave each operator.

    Raises:
        TopologyError: The name or another argument is invalid.
    """

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
                f"App name {name!r} is invalid. Use letters, digits, dots, underscores and dashes."
            )
        self.name = name
        self.bootstrap = bootstrap
        self.client = dict(client or {})
        self.master = master
        self.spark_settings = dict(spark or {})
        self.state_dir = str(state_dir or default_state_dir())
        if failures != "stop" and not isinstance(failures, DeadLetter):
            raise TopologyError(
                f"failures={failures!r} is invalid. Use 'stop' or st.DeadLetter(topic)."
            )
        self.failures = failures
        if max_records_per_batch is not None and max_records_per_batch < 1:
            raise TopologyError(
                f"max_records_per_batch={max_records_per_batch} is invalid. Use 1 or more, or None."
            )
        self.max_records_per_batch = max_records_per_batch
        self.operator_metrics = operator_metrics
        self._sinks: list[Sink] = []
        self._stores: dict[str, Store] = {}

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return (*self._sinks, *self._failure_sinks())

    def _failure_sinks(self) -> Iterator[Sink]:
        """Yield the sink for records on which a function raised, if a function may fail softly."""
        if not isinstance(self.failures, DeadLetter):
            return
        found = {
            id(node): node
            for sink in self._sinks
            for node in ancestors(sink)
            if getattr(getattr(node, "function", None), "catches_errors", False)
        }
        if found:
            failed = Failures(Bytes.shape, Bytes.shape, tuple(found.values()))
            topic = self.failures.topic
            yield Sink(failed.key, failed.value, failed, topic, Bytes, Bytes, False)

    def _with_failure_handling(self, node: Node) -> Node:
        return with_errors_caught(node) if isinstance(self.failures, DeadLetter) else node

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
        """Read a topic as a stream.

        Args:
            topic: Topic to read.
            value: Serde of the values.
            key: Serde of the keys.
            time: Function over records that returns the event time, as a timestamp or in
                milliseconds. None takes the timestamps of the records.
            start: Where a new application begins, `"earliest"` or `"latest"`.
            bad_records: `"stop"` stops the application when a record cannot be parsed, `"drop"`
                drops the record, and a `DeadLetter` writes it to its topic.

        Raises:
            TopologyError: An argument is invalid.
        """
        source = _source(topic, key, value, time, start, bad_records, is_table=False)
        if isinstance(bad_records, DeadLetter):
            bad = BadRecords(Bytes.shape, Bytes.shape, source)
            name = bad_records.topic
            self._add_sink(
                Sink(bad.key, bad.value, bad, name, Bytes, Bytes, has_window_in_key=False)
            )
        return Stream(self, source)

    def table(
        self, topic: str, *, value: Serde, key: Serde = String, bad_records: str = "stop"
    ) -> Table:
        """Read a topic as a table: the latest value of each key. A null value deletes the key.

        Args:
            topic: Topic to read.
            value: Serde of the values.
            key: Serde of the keys.
            bad_records: `"stop"` stops the application when a record cannot be parsed, `"drop"`
                drops the record.

        Raises:
            TopologyError: An argument is invalid.
        """
        source = _source(topic, key, value, None, "earliest", bad_records, is_table=True)
        return Table(self, source)

    def global_table(
        self, topic: str, *, value: Serde, key: Serde = String, bad_records: str = "stop"
    ) -> GlobalTable:
        """Read a topic as a table that streams can join by any key, not only their own.

        Args:
            topic: Topic to read.
            value: Serde of the values.
            key: Serde of the keys.
            bad_records: `"stop"` stops the application when a record cannot be parsed, `"drop"`
                drops the record.

        Raises:
            TopologyError: An argument is invalid.

        Example:
            customers = app.global_table("customers", value=st.Json("name string"))
            orders.join(customers, on=lambda order: order.customer_id)
        """
        return GlobalTable(_source(topic, key, value, None, "earliest", bad_records, is_table=True))

    def from_df(self, rows: DataFrame, *, key: str = "key", time: str = "timestamp") -> Stream:
        """Return a streaming DataFrame as a stream.

        All columns other than the key and the time form the value. A single one named `value` is
        the value itself.

        Args:
            rows: The streaming DataFrame.
            key: Column of the key.
            time: Column of the event time.
        """
        from ottla.streams.dataframes import source_of

        return Stream(self, source_of(rows, key, time))

    def explain(self) -> str:
        """Return the topology as text, with the engine that runs each operator.

        An operator runs as Spark columns, in Python, or with state.

        Raises:
            TopologyError: The application writes no topic.
        """
        return explain(self._checked_sinks())

    def topology(self) -> str:
        """Return the topology as text, without the engines.

        The application does not start from a checkpoint with another topology.

        Raises:
            TopologyError: The application writes no topic.
        """
        return topology(self._checked_sinks())

    def picture(self) -> str:
        """Return the topology as an SVG document.

        Raises:
            TopologyError: The application writes no topic.
        """
        return picture(self._checked_sinks())

    def _repr_svg_(self) -> str | None:
        return self.picture() if self._sinks else None

    def start(self, *, http: str | None = None) -> Running:
        """Start the application in the background.

        Args:
            http: Address for the application's HTTP interface, such as `localhost:7070`.

        Returns:
            The running application.

        Raises:
            TopologyError: The application writes no topic.
        """
        from ottla.streams.run import start

        return start(self, http=http)

    def run(self, *, http: str | None = None) -> None:
        """Run the application until it is stopped by Ctrl-C or SIGTERM, or fails.

        A failure ends the program with a message. Queries that lose a broker or an executor are
        restarted.

        Args:
            http: Address for the application's HTTP interface, such as `localhost:7070`.
        """
        from ottla.streams import launch

        launched = launch.current()
        if launched is not None:
            launched.apply_to(self)
            launched.started.append(self)
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
        """Return the table that the application writes to a topic, for look-ups.

        It can be used whether or not the application is running.

        Args:
            topic: Topic that the application writes.

        Raises:
            UserError: The application does not write the topic.
        """
        from ottla.streams.store import open_store

        if topic not in self._stores:
            self._stores[topic] = open_store(self, topic)
        return self._stores[topic]

    def close_stores(self) -> None:
        """Close the files and connections of all stores. They open again on the next look-up."""
        while self._stores:
            self._stores.popitem()[1].close()

    def reset(self) -> None:
        """Delete checkpoints, state, stores, committed offsets and internal topics.

        The next run starts as a new application. Topics that the application writes are kept; old
        records of those that it reads again (`through`) are skipped.
        """
        from ottla.streams.reset import reset

        reset(self)

    def _checked_sinks(self) -> tuple[Sink, ...]:
        if not self._sinks:
            raise TopologyError(f"App {self.name!r} writes no topic. End a stream with to(topic).")
        return self.sinks

    def _add_sink(self, sink: Sink) -> None:
        taken = [topic for each in self._sinks for topic in (each.topic, each.late_topic)]
        if isinstance(self.failures, DeadLetter):
            taken.append(self.failures.topic)
        if sink.topic in taken or (sink.late_topic is not None and sink.late_topic in taken):
            raise topology_error(
                "to", f"topic {sink.topic!r} is already written; merge the two streams"
            )
        read = [each.topic for each in ancestors(sink) if isinstance(each, Source)]
        if sink.topic in read and not isinstance(sink, Printed):
            raise topology_error(
                "to", f"the query would read topic {sink.topic!r} as well, so it would never end"
            )
        self._sinks.append(sink)


def from_df(app: App, rows: DataFrame, *, key: str = "key", time: str = "timestamp") -> Stream:
    """Return a streaming DataFrame as a stream of an application.

    Args:
        app: The application.
        rows: The streaming DataFrame.
        key: Column of the key.
        time: Column of the event time.
    """
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
        raise topology_error(operator, f"{topic!r} is not a topic name")
    key, value = source_serde(operator, "key", key), source_serde(operator, "value", value)
    if start not in ("earliest", "latest"):
        raise topology_error(operator, f"start={start!r} is invalid; use earliest or latest")
    if bad_records not in BAD_RECORD_POLICIES and (
        is_table or not isinstance(bad_records, DeadLetter)
    ):
        valid = listed(BAD_RECORD_POLICIES) + ("" if is_table else ", st.DeadLetter(topic)")
        raise topology_error(
            operator, f"bad_records={bad_records!r} is invalid; valid values: {valid}"
        )
    traced_time = None if time is None else trace("time", time, key.shape, value.shape)
    if isinstance(traced_time, Traced) and getattr(traced_time.outcome, "type", "") not in (
        "timestamp",
        "bigint",
        None,
    ):
        raise topology_error(
            "time", "the function must return a timestamp, or milliseconds as a bigint"
        )
    return Source(
        key.shape, value.shape, topic, key, value, traced_time, start, bad_records, is_table
    )
