"""Applications that read and write topics of a broker; consumers read their output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from examples import windowed_totals, word_count

import ottla.streams as st
from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.client.admin import OffsetSpec
from ottla.spark.sink import TopicStreamWriter
from ottla.streams.query_failures import QueryFailed
from ottla.streams.run import start
from ottla.streams.running import Running
from ottla.testing.broker_thread import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MARKERS_S = 30.0
ORDER = st.Json("id string, item string, amount double")


class Shop:
    """The environment of an application: a broker, a session and a state directory."""

    def __init__(self, broker: BrokerThread, spark: SparkSession, state_dir: Path) -> None:
        self.bootstrap = broker.bootstrap
        self._spark = spark
        self._state_dir = state_dir
        self._running: list[Running] = []

    def app(self, name: str) -> st.App:
        return st.App(name, bootstrap=self.bootstrap, state_dir=self._state_dir)

    def start(self, app: st.App) -> Running:
        self._running.append(start(app.application(), self._spark))
        return self._running[-1]

    def stop(self) -> None:
        for each in self._running:
            each.stop()

    def create(self, *topics: str, partitions: int = 1) -> None:
        with Admin(self.bootstrap) as admin:
            admin.create_topics(*(NewTopic(topic, partitions) for topic in topics))

    def send(self, topic: str, *records: tuple[str | None, Any, int]) -> None:
        """Write records, given as key, value (None for a tombstone) and time in seconds."""
        with Producer(self.bootstrap) as producer:
            sent = []
            for key, value, at_s in records:
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                future = producer.send(
                    topic,
                    None if value is None else data,
                    key=None if key is None else key.encode(),
                    timestamp=at_s * 1000,
                )
                sent.append(future)
            producer.flush()
            for future in sent:
                future.result(0)  # raises if the record was not written

    def _await_markers(self, consumer: Consumer, tps: list[TopicPartition]) -> None:
        """Wait until the last stable offset is the log end offset, but only for MARKERS_S.

        A committed transaction becomes visible when its markers are written, shortly after the
        commit. One that a test leaves open never does."""
        deadline = time.monotonic() + MARKERS_S
        with Admin(self.bootstrap) as admin:
            while time.monotonic() < deadline:
                ends = admin.list_offsets(dict.fromkeys(tps, OffsetSpec.LATEST))
                if consumer.end_offsets(*tps) == {tp: each.offset for tp, each in ends.items()}:
                    return
                time.sleep(0.05)

    def records(self, topic: str) -> list[tuple[bytes, Any]]:
        """Return key and value of all committed records."""
        found: list[tuple[bytes, Any]] = []
        with Consumer(self.bootstrap, isolation_level="read_committed") as consumer:
            with Admin(self.bootstrap) as admin:
                count = len(admin.describe_topics(topic)[topic].partitions)
            tps = [TopicPartition(topic, each) for each in range(count)]
            consumer.assign(tps)
            consumer.seek_to_beginning()
            self._await_markers(consumer, tps)
            ends = consumer.end_offsets(*tps)
            while any(consumer.position(tp) < ends[tp] for tp in tps):
                found += [(each.key, json.loads(each.value)) for each in consumer.poll(timeout_s=1)]
        return found


@pytest.fixture
def shop(broker: BrokerThread, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(broker, spark, tmp_path)
    yield made
    made.stop()


def totals(shop: Shop) -> st.App:
    app = shop.app("orders")
    windowed_totals.build(app)
    return app


def latest(records: list[tuple[bytes, Any]]) -> dict[tuple[str, int], tuple[float, int]]:
    """Return the last total and count by item and start of the window in seconds."""
    return {
        (key[:-8].decode(), int.from_bytes(key[-8:], "big") // 1000): (value["total"], value["n"])
        for key, value in records
    }


def test_windowed_totals_continue_after_a_stop_with_their_state(shop: Shop) -> None:
    shop.create("orders", "totals", partitions=2)
    order = {"id": "1", "item": "tea", "amount": 11.0}
    shop.send("orders", ("a", order, 1), ("b", order, 2), ("c", {**order, "amount": 9.0}, 3))
    running = shop.start(totals(shop))
    running.process_all_available()
    assert latest(shop.records("totals")) == {("tea", 0): (22.0, 2)}
    (status,) = running.status()
    assert (status.topic, status.is_active) == ("totals", True)
    running.stop()
    assert not running.status()[0].is_active

    shop.send("orders", ("d", order, 59), ("e", {**order, "item": "jam"}, 60))
    running = shop.start(totals(shop))
    running.process_all_available()
    running.stop()
    found = shop.records("totals")
    assert latest(found) == {("tea", 0): (33.0, 3), ("jam", 60): (11.0, 1)}
    assert len(found) == 3, "each change once"


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_a_batch_of_changes_that_is_run_again_is_written_once(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The batch fails as in a crash, and the restarted application runs it again."""
    name = f"again-{moment.partition(' ')[0]}"
    shop.create(f"in-{name}", f"out-{name}")

    def app() -> st.App:
        made = shop.app(name)
        words = made.stream(f"in-{name}", value=st.Json("word string"))
        words.group_by(lambda v: v.word).count().to(f"out-{name}")
        return made

    shop.send(f"in-{name}", ("k", {"word": "a"}, 1), ("k", {"word": "b"}, 1))
    commit = TopicStreamWriter.commit

    def fail(self: TopicStreamWriter, messages: Any, batch_id: int) -> None:
        if moment == "after the commit":
            commit(self, messages, batch_id)
        raise RuntimeError("the machine is gone")

    with monkeypatch.context() as patch:
        patch.setattr(TopicStreamWriter, "commit", fail)
        running = shop.start(app())
        with pytest.raises(QueryFailed, match="RuntimeError: the machine is gone"):
            running.process_all_available()
    shop.send(f"in-{name}", ("k", {"word": "a"}, 1))
    running = shop.start(app())
    running.process_all_available()
    running.stop()
    assert sorted((key, value["count"]) for key, value in shop.records(f"out-{name}")) == [
        (b"a", 1),
        (b"a", 2),
        (b"b", 1),
    ]


def test_an_application_as_a_program_runs_until_it_is_stopped(shop: Shop, tmp_path: Path) -> None:
    shop.create("lines", "counts")
    shop.send("lines", (None, b"to be or not to be", 1))
    program = Path(word_count.__file__)
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, program, shop.bootstrap],
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "SPARK_MASTER": "local[1]"},
            stdout=output,
            stderr=output,
        )
    try:
        with Consumer(shop.bootstrap, isolation_level="read_committed") as consumer:
            consumer.assign([TopicPartition("counts", 0)])
            consumer.seek_to_beginning()
            counts: dict[bytes | None, int] = {}
            while len(counts) < 4:
                assert process.poll() is None, log.read_text()
                for record in consumer.poll(timeout_s=1):
                    counts[record.key] = json.loads(record.value or b"")["count"]
        assert counts == {b"to": 2, b"be": 2, b"or": 1, b"not": 1}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_a_changed_topology_over_an_old_checkpoint_is_refused_with_what_changed(
    shop: Shop,
) -> None:
    shop.create("in-changed", "out-changed")

    def app(least: int) -> st.App:
        made = shop.app("changed")
        stream = made.stream("in-changed", value=ORDER)
        stream.filter(lambda o: o.amount > least).to("out-changed")
        return made

    shop.send("in-changed", ("k", {"id": "1", "item": "tea", "amount": 5.5}, 1))
    running = shop.start(app(5))
    running.process_all_available()
    running.stop()
    assert shop.records("out-changed") == [(b"k", {"id": "1", "item": "tea", "amount": 5.5})]
    with pytest.raises(st.TopologyError, match="written by a different topology") as refusal:
        shop.start(app(6))
    assert "- 2  filter  amount > 5\n+ 2  filter  amount > 6" in str(refusal.value)


def test_a_stream_joins_a_tables_topic_as_it_is_in_each_batch(shop: Shop) -> None:
    shop.create("clicks", "users", "named")
    app = shop.app("enrich")
    clicks = app.stream("clicks", value=st.Json("page string"))
    clicks.join(app.table("users", value=st.Json("name string"))).to("named")
    shop.send("users", ("u", {"name": "Ada"}, 1))
    shop.send("clicks", ("u", {"page": "/"}, 2))
    running = shop.start(app)
    running.process_all_available()
    shop.send("users", ("u", {"name": "Ann"}, 3))
    shop.send("clicks", ("u", {"page": "/a"}, 4))
    running.process_all_available()
    shop.send("users", ("u", None, 5))
    shop.send("clicks", ("u", {"page": "/b"}, 6))
    running.process_all_available()
    assert [value for _, value in shop.records("named")] == [
        {"page": "/", "name": "Ada"},
        {"page": "/a", "name": "Ann"},
    ]


def test_a_record_that_cannot_be_parsed_stops_the_app_with_a_sentence(shop: Shop) -> None:
    shop.create("in-bad", "out-bad")
    app = shop.app("bad")
    app.stream("in-bad", value=ORDER).to("out-bad")
    shop.send("in-bad", ("k", b"{", 1))
    running = shop.start(app)
    with pytest.raises(QueryFailed, match=r"App 'bad', topic 'out-bad': .*(?i:malformed)"):
        running.process_all_available()
    assert shop.records("out-bad") == []
