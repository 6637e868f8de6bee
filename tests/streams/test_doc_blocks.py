"""Code blocks of the README and of docs/ that need Spark, run in the session of these tests.

tests/docs runs the other blocks. An application runs until it has processed all available
records."""

from __future__ import annotations

import datetime
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.blocks import ELSEWHERE, RUN, Block, blocks, commands, pages
from tests.docs.running import Page
from tests.docs.stages import orders

import ottla.streams as st
from ottla import Admin, NewTopic, Producer
from ottla.streams import run as running
from ottla.testing.broker_thread import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = ("lines", "counts", "totals", "loud-orders", "greetings")
NAMES = {
    "start": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "statistics": statistics,
    "DAY_MS": 86_400_000,
}
"""Names that the pages use without defining them."""
NOT_RUN = {
    "ottla sql": "stops its session; tests/spark/test_session_and_tables.py has it",
}


def of(page: str) -> list[Block]:
    if page in ELSEWHERE:
        return []
    return [block for block in blocks(page) if block.language in RUN and block.needs_spark]


@pytest.mark.parametrize("name", [page for page in pages() if of(page)])
def test_the_code_of_a_page_runs_on_spark(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(st.App, "run", lambda app: run_once(app, spark))
    with BrokerThread() as broker:
        page = Page(broker, tmp_path, monkeypatch)
        orders(page)
        with Admin(broker.bootstrap) as admin:
            admin.create_topics(*(NewTopic(topic, 1) for topic in TOPICS))
        with Producer(broker.bootstrap) as producer:
            producer.send("lines", b"tea or coffee")
        page.names.update(spark=spark, **NAMES)
        for block in of(name):
            if block.language != "python":
                for command, typed in commands(block.text):
                    if not command.startswith(tuple(NOT_RUN)):
                        page.command(command, typed)
                continue
            text = block.text.replace("/var/lib", str(tmp_path))
            text = text.replace('realTime="30 seconds"', 'realTime="5 seconds"')
            page.python(block._replace(text=text))
            for query in spark.streams.active:
                query.processAllAvailable()
                query.stop()


def run_once(app: st.App, spark: Any) -> None:
    started = running.start(app.application(), spark)
    try:
        started.process_all_available()
    finally:
        started.stop()
