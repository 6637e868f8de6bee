"""Running applications: stores, metrics, resets, stops and restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner
from examples import windowed_totals, word_count
from tests.streams.test_on_topics import Shop

import ottla.streams as st
from ottla import Admin
from ottla.base.errors import UserError
from ottla.cli.kafka_streams_application_reset import kafka_streams_application_reset
from ottla.streams.query_failures import QueryFailed
from ottla.streams.run import start
from ottla.streams.running import Running
from ottla.streams.store import Stores
from ottla.testing.broker_thread import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 120.0
MINUTE_S = 60


@pytest.fixture
def shop(broker: BrokerThread, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(broker, spark, tmp_path)
    yield made
    made.stop()


def counting(shop: Shop, name: str) -> st.App:
    app = shop.app(name)
    words = app.stream(f"{name}-words", value=st.String)
    words.filter(lambda word: word != "").group_by(lambda word: word).count().to(f"{name}-counts")
    return app


def say(shop: Shop, name: str, *words: str) -> None:
    shop.send(f"{name}-words", *((None, word.encode(), 1) for word in words))


def processed(shop: Shop, app: st.App) -> Running:
    running = shop.start(app)
    running.process_all_available()
    return running


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


# ------------------------------------------------------------------------------------- stores


def test_a_store_is_the_state_of_the_running_query(
    shop: Shop, spark: SparkSession, tmp_path: Path
) -> None:
    shop.create("asked-words", "asked-counts", partitions=2)
    app = counting(shop, "asked")
    say(shop, "asked", "tea", "jam", "tea")
    running = processed(shop, app)
    shop.records("asked-counts")  # waits for the transaction markers
    store = app.store("asked-counts")
    assert store.get("tea") == {"count": 2}
    assert store.get("milk") is None
    say(shop, "asked", *(f"word-{number}" for number in range(20)), "tea")
    running.process_all_available()
    shop.records("asked-counts")
    assert store.get("tea") == {"count": 3}, "what is committed is seen at once"
    assert [entry.key for entry in store.range("jam", "word-1")] == [
        "jam", "tea", "word-0", "word-1",
    ]  # fmt: skip
    assert len(store) == 22

    kept = spark.read.format("statestore").load(str(tmp_path / "asked" / "asked-counts"))
    state = {
        row.key.key: row.value.asDict()["count"] for row in kept.select("key", "value").collect()
    }
    assert {entry.key: entry.value["count"] for entry in store} == state


def test_a_store_outlives_its_application_and_its_file(shop: Shop, tmp_path: Path) -> None:
    shop.create("kept-words", "kept-counts")
    say(shop, "kept", "tea", "tea")
    app = counting(shop, "kept")
    running = processed(shop, app)
    shop.records("kept-counts")
    assert app.store("kept-counts").get("tea") == {"count": 2}
    running.stop()
    state = tmp_path / "kept" / "kept-counts" / "state"
    assert list(state.rglob("*.changelog")), "RocksDB, with a changelog for each batch"
    assert counting(shop, "kept").store("kept-counts").get("tea") == {"count": 2}
    for file in (tmp_path / "kept").glob("kept-counts.store*"):
        file.unlink()
    assert counting(shop, "kept").store("kept-counts").get("tea") == {"count": 2}


def test_a_windowed_store_is_asked_by_key_and_time(shop: Shop) -> None:
    shop.create("orders-w", "totals-w")
    app = shop.app("windows")
    orders = app.stream("orders-w", value=st.Json("item string"))
    orders.group_by(lambda o: o.item).windowed(st.tumbling("1 minute")).count().to("totals-w")
    shop.send("orders-w", *((None, {"item": "tea"}, at_s) for at_s in (0, 1, MINUTE_S)))
    processed(shop, app)
    shop.records("totals-w")
    store = app.store("totals-w")
    assert store.get("tea")["count"] == 1, "the last window"
    assert store.get("tea", at=0)["count"] == 2
    assert store.get("tea", at=30_000) is None
    entries = store.windows("tea", since=0, until=60_000)
    assert [(each.window_ms, each.value["count"]) for each in entries] == [
        ((0, 60_000), 2),
        ((60_000, 120_000), 1),
    ]


def test_what_is_no_store_and_what_is_no_key_is_a_sentence(shop: Shop) -> None:
    shop.create("none-words", "none-counts")
    app = counting(shop, "none")
    with pytest.raises(UserError, match="no store 'counts'; stores: none-counts"):
        app.store("counts")
    store = app.store("none-counts")
    with pytest.raises(UserError, match="has no windows"):
        store.get("tea", at=0)
    with pytest.raises(UserError, match="None is not a valid key"):
        store.get(None)


def test_a_running_application_answers_over_http(shop: Shop, spark: SparkSession) -> None:
    shop.create("web-words", "web-counts")
    say(shop, "web", "tea", "", "tea")
    app = counting(shop, "web")
    running = start(app.application(), spark, http="127.0.0.1:0")
    try:
        running.process_all_available()
        shop.records("web-counts")
        assert running.server is not None
        url = running.server.url
        assert fetched(f"{url}/stores/web-counts/tea")["value"] == {"count": 2}
        (status,) = fetched(f"{url}/status")
        assert status["is_active"]
        assert status["lag"] == 0
        assert [(each["operator"], each["rows"]) for each in status["operators"]] == [
            ("stream", 3), ("filter", 2), ("select_key", 2), ("aggregate", 1),
            ("to", 1),
        ]  # fmt: skip
        (source,), (state,) = status["sources"], status["state"]
        assert (source["topic"], source["rows"]) == ("web-words", 3)
        assert (state["rows"], state["updated"]) == (None, 1), "keys are not counted"
    finally:
        running.stop()


# -------------------------------------------------------------------------------------- resets


def test_a_reset_application_begins_anew(shop: Shop, tmp_path: Path) -> None:
    shop.create("anew-words", "anew-counts", "anew-x-changelog")
    say(shop, "anew", "tea", "tea")
    app = counting(shop, "anew")
    running = processed(shop, app)
    with pytest.raises(UserError, match="App 'anew' is already running"):
        counting(shop, "anew").reset()
    running.stop()
    app.reset()
    with Admin(shop.bootstrap) as admin:
        assert "anew-x-changelog" not in admin.list_topics()
        assert "anew" not in admin.list_groups()
    processed(shop, counting(shop, "anew")).stop()
    assert [value["count"] for _, value in shop.records("anew-counts")] == [2, 2], "counted anew"


def test_a_reset_passes_over_what_was_written_between_two_queries(shop: Shop) -> None:
    shop.create("line-in", "line-between", "line-out")

    def app() -> st.App:
        made = shop.app("line")
        made.stream("line-in", value=st.String).to("line-between")
        words = made.stream("line-between", value=st.String)
        words.group_by(lambda word: word).count().to("line-out")
        return made

    shop.send("line-in", (None, b"tea", 1))
    running = processed(shop, app())
    running.process_all_available()
    running.stop()
    app().reset()
    running = processed(shop, app())
    running.process_all_available()
    running.stop()
    assert [value["count"] for _, value in shop.records("line-out")] == [1, 1], "and not 2 of it"


def told_of(running: Running) -> str:
    """Return Spark's progress reports, to explain a failed assertion."""
    return str([each.json for query in running._queries for each in query.spark.recentProgress])


def reset_tool(shop: Shop, state_dir: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(
        kafka_streams_application_reset,
        ["--bootstrap-server", shop.bootstrap, "--state-dir", str(state_dir), *arguments],
        standalone_mode=False,
    )
    if result.exception is not None:
        raise result.exception
    return result


def test_the_reset_tool_sets_where_the_next_run_begins(shop: Shop, tmp_path: Path) -> None:
    shop.create("tool-words", "tool-counts")
    say(shop, "tool", "tea", "tea")
    running = processed(shop, counting(shop, "tool"))
    assert [value["count"] for _, value in shop.records("tool-counts")] == [2], told_of(running)
    arguments = ("--application-id", "tool", "--input-topics", "tool-words")
    with pytest.raises(UserError, match="is already running"):
        reset_tool(shop, tmp_path, *arguments)
    running.stop()

    reported = reset_tool(shop, tmp_path, *arguments, "--to-offset", "1", "--dry-run").output
    assert "Topic: tool-words Partition: 0 Offset: 1" in reported
    assert (tmp_path / "tool" / "tool-counts").exists(), "a dry run changes nothing"

    reset_tool(shop, tmp_path, *arguments, "--to-offset", "1")
    assert not (tmp_path / "tool" / "tool-counts").exists()
    running = processed(shop, counting(shop, "tool"))
    counts = [value["count"] for _, value in shop.records("tool-counts")]
    assert counts == [2, 1], told_of(running)
    running.stop()


def test_the_reset_tool_reports_what_it_cannot_do(shop: Shop, tmp_path: Path) -> None:
    reported = reset_tool(shop, tmp_path, "--application-id", "x", "--input-topics", "not-there")
    assert reported.return_value == 1
    assert "Following topics are not found, skipping them\nTopic: not-there" in reported.output
    with pytest.raises(
        UserError, match=r"t is not an internal topic of x\. Its internal topics: none"
    ):
        reset_tool(shop, tmp_path, "--application-id", "x", "--internal-topics", "t")
    with pytest.raises(UserError, match=r"app\.reset\(\)"):
        reset_tool(shop, tmp_path, "--application-id", "x", "--state-dir", "s3a://bucket/x")
    with pytest.raises(click.UsageError, match="cannot be combined"):
        reset_tool(shop, tmp_path, "--application-id", "x", "--to-latest", "--to-earliest")


# ------------------------------------------------------------------------- starts and stops


def test_a_topology_is_checked_on_any_file_system_of_sparks(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shop.create("far-in", "far-out")

    def app(least: int) -> st.App:
        made = st.App("far", bootstrap=shop.bootstrap, state_dir=f"file://{tmp_path}/far-away")
        made.stream("far-in", value=st.Json("n bigint")).filter(lambda o: o.n > least).to("far-out")
        return made

    shop.send("far-in", ("k", {"n": 5}, 1))
    processed(shop, app(1)).stop()
    with pytest.raises(st.TopologyError, match="written by a different topology"):
        shop.start(app(2))
    app(1).reset()
    processed(shop, app(2)).stop()
    assert len(shop.records("far-out")) == 2


def test_an_application_is_not_started_twice(shop: Shop) -> None:
    shop.create("twice-words", "twice-counts")
    processed(shop, counting(shop, "twice"))
    with pytest.raises(UserError, match=r"is already running \(process \d+"):
        shop.start(counting(shop, "twice"))


class Query:
    """Stub of a Spark query that runs or has failed."""

    def __init__(self, error: str | None = None) -> None:
        self.error = error
        self.isActive = error is None
        self.lastProgress = None

    def exception(self) -> str | None:
        return self.error

    def stop(self) -> None:
        self.isActive = False


def test_a_query_that_lost_its_broker_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.streams import running as module
    from ottla.streams.checkpoint import AppLock

    monkeypatch.setattr(module, "pause_s", lambda failures: 0.0)
    app = st.App("lost", state_dir=tmp_path)
    app.stream("a").to("b")
    ends = iter(["KafkaTimeout: nothing came", "ConnectionRefusedError: [Errno 111]", None])
    running = Running(
        app.application(), None, lambda *_: Query(next(ends)), AppLock(str(tmp_path), "lost"), Stores(), owns_session=False  # type: ignore[arg-type, return-value]  # noqa: E501
    )  # fmt: skip
    running.start(app.sinks)
    said: list[str] = []
    for _ in range(4):
        running.supervise(said.append)
    assert [each.partition(";")[0] for each in said] == [
        "App 'lost', topic 'b': KafkaTimeout: nothing came",
        "App 'lost', topic 'b': ConnectionRefusedError: [Errno 111]",
    ]
    assert running._queries[0].spark.isActive
    assert running._queries[0].restarts == 2


def test_a_query_that_would_fail_again_ends_the_application(tmp_path: Path) -> None:
    from ottla.streams.checkpoint import AppLock

    app = st.App("bad", state_dir=tmp_path)
    app.stream("a").to("b")
    running = Running(
        app.application(), None, lambda *_: Query("ValueError: no number"), AppLock(str(tmp_path), "bad"), Stores(), owns_session=False  # type: ignore[arg-type, return-value]  # noqa: E501
    )  # fmt: skip
    running.start(app.sinks)
    with pytest.raises(QueryFailed, match="App 'bad', topic 'b': ValueError: no number"):
        running.supervise(print)


def launched(tmp_path: Path, log: Path, *command: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip


def counts_after(shop: Shop, process: subprocess.Popen[bytes], log: Path, total: int) -> list[Any]:
    deadline = time.monotonic() + WAIT_S
    while True:
        found = [(key, value["count"]) for key, value in shop.records("counts-c")]
        if sum(dict(found).values()) >= total:
            return found
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_stopped_by_ctrl_c_and_started_otherwise_it_neither_loses_nor_repeats(
    shop: Shop, tmp_path: Path
) -> None:
    """Ctrl-C reaches every process of the terminal: Python, the JVM and the workers."""
    shop.create("lines-c", "counts-c")
    program = tmp_path / "words.py"
    text = Path(word_count.__file__).read_text()
    program.write_text(text.replace('"lines"', '"lines-c"').replace('"counts"', '"counts-c"'))
    shop.send("lines-c", (None, b"to be or not to be", 1))
    log = tmp_path / "log"
    bin_dir = Path(sys.executable).parent
    # The JVM of spark-submit exits at once; the next run finishes what it left incomplete.
    commands = [
        [str(bin_dir / "spark-submit"), "--master", "local[1]", str(program), shop.bootstrap],
        [sys.executable, "-m", "ottla", "run", str(program), "--master", "local[1]",
         "--bootstrap-server", shop.bootstrap],
    ]  # fmt: skip
    for number, command in enumerate(commands, 1):
        process = launched(tmp_path, log, *command)
        try:
            found = counts_after(shop, process, log, 6 * number)
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait(60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        said = log.read_text()
        assert "word-count: running on local[1], writing counts-c" in said
        shop.send("lines-c", (None, b"to be or not to be", 2))
    assert code == 0, said
    assert "Traceback" not in said, said
    assert "word-count: stopped" in said
    assert sorted(found) == [
        (b"be", 2), (b"be", 4), (b"not", 1), (b"not", 2), (b"or", 1), (b"or", 2), (b"to", 2),
        (b"to", 4),
    ]  # fmt: skip


def test_examples_can_be_drawn() -> None:
    app = st.App("drawn")
    windowed_totals.build(app)
    assert "aggregate" in app.picture()
