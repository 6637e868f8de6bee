"""Applications: a name, a cluster, and the topology built on the cluster's topics.

The name begins the consumer groups that show the application's progress, and is part of the path of
its checkpoint and of its transactional IDs. Two applications must not share a name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.base.errors import UserError
from ottla.streams.application import Application
from ottla.streams.checkpoint import default_state_dir
from ottla.streams.connection import connection_properties
from ottla.streams.dsl import GlobalTable, Stream, Table
from ottla.streams.durations import Duration
from ottla.streams.errors import TopologyError
from ottla.streams.operators.topics import BadRecords, Sink, make_bytes_sink, make_source
from ottla.streams.plan.explain import explain, topology
from ottla.streams.plan.node import Node
from ottla.streams.plan.picture import picture
from ottla.streams.real_time import MICRO_BATCH, checked_interval
from ottla.streams.serdes import Bytes, DeadLetter, Serde, String
from ottla.streams.store import Store, Stores
from ottla.streams.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.streams.running import Running

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
        bootstrap: Broker addresses; by default, those of the profile, or `localhost:9092`.
        profile: Properties file for the connection. None reads the default profile, if there is
            one. Properties that only producers or only consumers have are ignored.
        state_dir: Directory for checkpoints.
        client: Further properties of the connection, such as `security.protocol`. They override
            the profile.
        master: Spark master, such as `local[4]`.
        spark: Settings of the Spark session.
        failures: `"stop"` stops the application when a Python function raises; a `DeadLetter`
            writes the record to its topic and continues. Stateful functions always stop it.
        max_records_per_batch: Maximum number of records of each topic in a micro-batch. None
            takes all that are available.
        operator_metrics: Count the rows that leave each operator.
        latency: `"micro-batch"` processes records in batches, and writes results exactly once.
            `"real-time"` processes each record when it arrives, within milliseconds, and writes
            results at least once. It supports fewer operators.
        commit_interval: Interval at which a real-time application commits what it has processed,
            such as `"30 seconds"`. After a failure, it repeats the records since the last commit.

    Raises:
        TopologyError: The name or another argument is invalid.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str | None = None,
        *,
        profile: str | os.PathLike[str] | None = None,
        state_dir: str | Path | None = None,
        client: Mapping[str, str] | None = None,
        master: str | None = None,
        spark: Mapping[str, str] | None = None,
        failures: str | DeadLetter = "stop",
        max_records_per_batch: int | None = DEFAULT_BATCH_RECORDS,
        operator_metrics: bool = True,
        latency: str = MICRO_BATCH,
        commit_interval: Duration | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise TopologyError(
                f"App name {name!r} is invalid. Use letters, digits, dots, underscores and dashes."
            )
        self.name = name
        connection = connection_properties(bootstrap, profile, client or {})
        self.bootstrap = connection.pop("bootstrap.servers")
        self.client = connection
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
        self.commit_interval = checked_interval(latency, commit_interval)
        letter = failures if isinstance(failures, DeadLetter) else None
        self._topology = Topology(
            name, letter, self._frame_of, is_real_time=self.commit_interval is not None
        )
        self._stores = Stores()

    @property
    def sinks(self) -> tuple[Sink, ...]:
        return self._topology.sinks

    def application(self) -> Application:
        """Return an immutable description of the application as it is now."""
        return Application(
            name=self.name,
            bootstrap=self.bootstrap,
            client=dict(self.client),
            master=self.master,
            spark_settings=dict(self.spark_settings),
            state_dir=self.state_dir,
            max_records_per_batch=self.max_records_per_batch,
            operator_metrics=self.operator_metrics,
            commit_interval=self.commit_interval,
            sinks=self.sinks,
        )

    def _frame_of(self, node: Node) -> DataFrame:
        from ottla.streams.dataframes import frame_of

        return frame_of(self.application(), node)

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
        source = make_source(topic, key, value, time, start, bad_records, is_table=False)
        if isinstance(bad_records, DeadLetter):
            bad = BadRecords(Bytes.shape, Bytes.shape, source)
            self._topology.add_sink(make_bytes_sink(bad, bad_records.topic))
        return Stream(self._topology, source)

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
        source = make_source(topic, key, value, bad_records=bad_records, is_table=True)
        return Table(self._topology, source)

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
        source = make_source(topic, key, value, bad_records=bad_records, is_table=True)
        return GlobalTable(source)

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

        return Stream(self._topology, source_of(rows, key, time))

    def explain(self) -> str:
        """Return the topology as text, with the engine that runs each operator.

        An operator runs as Spark columns, in Python, or with state.

        Raises:
            TopologyError: The application writes no topic.
        """
        return explain(self.application().require_sinks())

    def topology(self) -> str:
        """Return the topology as text, without the engines.

        The application does not start from a checkpoint with another topology.

        Raises:
            TopologyError: The application writes no topic.
        """
        return topology(self.application().require_sinks())

    def picture(self) -> str:
        """Return the topology as an SVG document.

        Raises:
            TopologyError: The application writes no topic.
        """
        return picture(self.application().require_sinks())

    def _repr_svg_(self) -> str | None:
        return self.picture() if self.sinks else None

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

        return start(self.application(), stores=self._stores, http=http)

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
            run(self.application(), stores=self._stores, http=http)
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
        return self._stores.open(self.application(), topic)

    def close_stores(self) -> None:
        """Close the files and connections of all stores. They open again on the next look-up."""
        self._stores.close()

    def reset(self) -> None:
        """Delete checkpoints, state, stores, committed offsets and internal topics.

        The next run starts as a new application. Topics that the application writes are kept; old
        records of those that it also reads are skipped.
        """
        from ottla.streams.reset import reset

        reset(self.application(), self._stores)


def from_df(app: App, rows: DataFrame, *, key: str = "key", time: str = "timestamp") -> Stream:
    """Return a streaming DataFrame as a stream of an application.

    Args:
        app: The application.
        rows: The streaming DataFrame.
        key: Column of the key.
        time: Column of the event time.
    """
    return app.from_df(rows, key=key, time=time)
