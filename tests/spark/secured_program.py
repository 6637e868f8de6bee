"""Driver program of the tests: it copies a topic in every way that Ottla offers, over a profile.

python -m tests.spark.secured_program MASTER SOURCE RECORDS HOME [PAGE…]

It writes the topics SOURCE-batch, SOURCE-stream, SOURCE-real-time, SOURCE-app and
SOURCE-app-real-time, and everything that Spark shows of the queries to files in HOME. The profile
is gone when the applications of Streams start."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.spark.secured_broker import SECRETS, VISIBLE_TO_DRIVER
from tests.spark.web_pages import pages

import ottla.spark
from ottla import Consumer, streams
from ottla.client.consumer.config import ConsumerConfig
from ottla.client.inlined_files import with_inlined_files
from ottla.client.profile import load_profile
from ottla.streams import App, String
from ottla.streams.query_failures import cause_of, is_transient

PROFILE = f"{VISIBLE_TO_DRIVER}/client.properties"
PATIENCE_S = 300.0
ATTEMPTS = 5
T = TypeVar("T")
logger = logging.getLogger(__name__)


def main(master: str, source: str, records: str, home: str, *interfaces: str) -> None:
    logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.INFO)  # logs what the program passes to Spark
    for folder in ("events", "shown"):
        Path(home, folder).mkdir()
    spark = ottla.spark.session(
        master,
        app_name="secured",
        **{
            "spark.executor.cores": 1, "spark.cores.max": 2, "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": 1, "spark.ui.enabled": "true", "spark.ui.port": 0,
            "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file:{home}/events",
        },
    )  # fmt: skip
    Program(spark, source, int(records), Path(home), interfaces).run()
    spark.stop()


class Program:
    def __init__(
        self, spark: Any, source: str, count: int, home: Path, interfaces: tuple[str, ...]
    ) -> None:
        self._spark = spark
        self._source = source
        self._count = count
        self._home = home
        self._interfaces = interfaces
        self._client = with_inlined_files(ConsumerConfig, load_profile(PROFILE))
        """Properties of this program's own consumers, which do not need the profile."""

    def run(self) -> None:
        self._batch()
        self._stream()
        self._real_time()
        self._app("app", "micro-batch")
        self._app("app-real-time", "real-time")

    def _batch(self) -> None:
        rows = retried(lambda: self._read(self._spark.read))
        self._show("batch", rows)
        assert retried(rows.count) == self._count
        retried(lambda: self._write(rows.write.mode("append"), "batch").save())

    def _stream(self) -> None:
        rows = retried(lambda: self._read(self._spark.readStream))
        self._show("stream", rows)
        writer = self._write(rows.selectExpr("value").writeStream, "stream")
        query = self._wait_for_copies("stream", writer.start)
        self._show_query("stream", query)
        self._show_pages()
        query.stop()

    def _real_time(self) -> None:
        rows = retried(lambda: self._read(self._spark.readStream)).selectExpr("value")
        writer = self._write(rows.writeStream, "real-time").outputMode("update")
        query = self._wait_for_copies("real-time", writer.trigger(realTime="5 seconds").start)
        self._show_query("real-time", query)
        self._show_pages()
        query.stop()

    def _app(self, name: str, latency: str) -> None:
        own: dict[str, Any] = {"commit_interval": "5 seconds"} if latency == "real-time" else {}
        app = App(
            f"{self._source}-{name}", profile=PROFILE, state_dir=self._home / "state",
            latency=latency, **own,
        )  # fmt: skip
        lines: streams.Stream = app.stream(self._source, value=String)
        lines.map_values(shouted, "string").to(f"{self._source}-{name}", value=String)
        self._keep(name, f"{app.explain()}\n{app.topology()}\n{app!r}\n{app.application()!r}")
        running: Any = None

        def start() -> Any:
            nonlocal running
            if running is not None:
                running.stop()
            running = app.start()
            (query,) = self._spark.streams.active
            return query

        with self._without_profile():
            try:
                query = self._wait_for_copies(name, start)
                self._keep(name, str(running.status()))
                self._show_query(name, query)
                self._show_pages()
            finally:
                if running is not None:
                    running.stop()

    # --------------------------------------------------------------------------------- helpers

    def _read(self, reader: Any) -> Any:
        options = {"profile": PROFILE, "subscribe": self._source, "startingOffsets": "earliest"}
        return reader.format("ottla").options(**options).load()

    def _write(self, writer: Any, name: str) -> Any:
        writer = writer.format("ottla").options(profile=PROFILE, topic=f"{self._source}-{name}")
        return writer.option("checkpointLocation", str(self._home / f"checkpoint-{name}"))

    def _wait_for_copies(self, name: str, start: Callable[[], Any]) -> Any:
        """Start a query, wait until the topic has all records and two batches, and return it."""
        found: set[bytes] = set()
        deadline = time.monotonic() + PATIENCE_S
        with Consumer(
            profile=self._client, auto_offset_reset="earliest", isolation_level="read_committed",
            group_id=f"{self._source}-{name}-check",
        ) as consumer:  # fmt: skip
            consumer.subscribe([f"{self._source}-{name}"])
            query = retried(start)
            while len(found) < self._count or len(query.recentProgress) < self._batches(name):
                found.update(each.value for each in consumer.poll(timeout_s=0.5))
                if query.exception() is not None:
                    assert is_transient(str(query.exception())), query.exception()
                    query = retried(start)
                assert time.monotonic() < deadline, (len(found), query.lastProgress)
        return query

    def _batches(self, name: str) -> int:
        """Return the number of batches to wait for. Only real-time queries begin new ones."""
        return 2 if name.endswith("real-time") else 1

    @contextlib.contextmanager
    def _without_profile(self) -> Iterator[None]:
        hidden = Path(SECRETS).rename("hidden")
        try:
            yield
        finally:
            hidden.rename(SECRETS)

    def _show(self, name: str, frame: Any) -> None:
        for mode in ("simple", "extended", "formatted", "cost"):
            frame.explain(mode)
        self._keep(name, f"{frame!r} {frame.schema}")

    def _show_query(self, name: str, query: Any) -> None:
        query.explain(True)
        progress = json.dumps([str(each) for each in query.recentProgress])
        self._keep(name, f"{progress}\n{query.lastProgress}\n{query.status}\n{query!r}")

    def _show_pages(self) -> None:
        """Keep all pages of Spark's interfaces: the application's, the master's, the workers'."""
        context = self._spark.sparkContext
        own = context.uiWebUrl
        api = f"{own}/api/v1/applications/{context.applicationId}"
        starts = [f"{api}/{each}" for each in ("environment", "jobs", "stages", "allexecutors")]
        starts += [f"{api}/sql?details=true&planDescription=true&length=1000"]
        for address, text in pages(own, *starts, *self._interfaces):
            self._keep("pages", f"=== {address}\n{text}")

    def _keep(self, name: str, text: str) -> None:
        with Path(self._home, "shown", f"{name}.txt").open("a") as file:
            file.write(f"{text}\n")


def retried(function: Callable[[], T]) -> T:
    """Call a function again if Spark's Python did not start within Spark's fixed ten seconds."""
    for _ in range(ATTEMPTS - 1):
        try:
            return function()
        except Exception as error:
            if not is_transient(str(error)):
                raise
            logger.warning("again: %s", cause_of(str(error)))
    return function()


def shouted(value: str) -> str:
    """Return the value in upper case. Ottla cannot translate it to columns: it runs in Python."""
    return bytes(value, "utf-8").decode().upper()


if __name__ == "__main__":
    main(*sys.argv[1:])
