"""Operators with Python state, internal topics and late records, on topics of a broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from examples import foreign_key_join

import ottla.streams as st
from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.streams.run import Running, start
from ottla.testing.broker_thread import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOWEST_S = 120
ORDER = st.Json("item string, amount double")


class Surroundings:
    """The environment of an application: a broker, a session and a state directory."""

    def __init__(self, broker: BrokerThread, spark: SparkSession, state_dir: Path) -> None:
        self.bootstrap = broker.bootstrap
        self._spark = spark
        self._state_dir = state_dir
        self.running: list[Running] = []

    def app(self, name: str) -> st.App:
        return st.App(name, bootstrap=self.bootstrap, state_dir=self._state_dir)

    def start(self, app: st.App) -> Running:
        self.running.append(start(app.application(), self._spark))
        return self.running[-1]

    def run_all(self, app: st.App) -> None:
        """Start the application, process all available records, and stop it."""
        running = self.start(app)
        running.process_all_available()
        running.stop()

    def create(self, *topics: str, partitions: int = 1) -> None:
        with Admin(self.bootstrap) as admin:
            admin.create_topics(*(NewTopic(topic, partitions) for topic in topics))

    def send(self, topic: str, *records: tuple[str, Any, int]) -> None:
        """Write records, given as key, value (None for a tombstone) and time in seconds."""
        with Producer(self.bootstrap) as producer:
            for key, value, at_s in records:
                data = None if value is None else json.dumps(value).encode()
                producer.send(topic, data, key=key.encode(), timestamp=at_s * 1000)
            producer.flush()

    def records(self, topic: str, count: int) -> list[tuple[bytes, Any]]:
        """Return the committed records of partition 0, once there are `count` of them.

        A committed transaction becomes visible only when its markers are written."""
        found: list[tuple[bytes, Any]] = []
        deadline_s = time.monotonic() + SLOWEST_S
        with Consumer(self.bootstrap, isolation_level="read_committed") as consumer:
            tp = TopicPartition(topic, 0)
            consumer.assign([tp])
            consumer.seek_to_beginning()
            while len(found) < count or consumer.position(tp) < consumer.end_offsets(tp)[tp]:
                assert time.monotonic() < deadline_s, found
                found += [
                    (each.key or b"", each.value and json.loads(each.value))
                    for each in consumer.poll(timeout_s=1)
                ]
        return found


@pytest.fixture
def around(broker: BrokerThread, spark: SparkSession, tmp_path: Path) -> Iterator[Surroundings]:
    made = Surroundings(broker, spark, tmp_path)
    yield made
    for each in made.running:
        each.stop()


def test_python_state_continues_after_a_stop_and_late_records_have_their_topic(
    around: Surroundings,
) -> None:
    around.create("py-orders", partitions=2)
    around.create("py-totals", "py-late")

    def app() -> st.App:
        made = around.app("py")
        orders = made.stream("py-orders", value=ORDER)
        windowed = orders.group_by(lambda o: o.item).windowed(
            st.tumbling("1 minute"), late=st.DeadLetter("py-late")
        )
        windowed.aggregate(list, lambda seen, o: [*seen, o.amount], schema="array<double>").to(
            "py-totals", key=st.String
        )
        return made

    tea = {"item": "tea", "amount": 1.0}
    around.send("py-orders", ("a", tea, 1), ("a", {**tea, "amount": 2.0}, 2))
    around.run_all(app())
    assert around.records("py-totals", 1) == [(b"tea", [1.0, 2.0])]
    jam = {"item": "jam", "amount": 8.0}
    around.send("py-orders", ("a", {**tea, "amount": 4.0}, 3), ("b", jam, 60))
    around.run_all(app())
    changes = [(b"jam", [8.0]), (b"tea", [1.0, 2.0, 4.0])]
    assert sorted(around.records("py-totals", 3)[1:]) == changes
    around.send("py-orders", ("a", {**tea, "amount": 16.0}, 4))
    around.run_all(app())
    assert around.records("py-late", 1) == [(b"tea", {"item": "tea", "amount": 16.0})]
    assert len(around.records("py-totals", 3)) == 3


def test_a_foreign_key_join_makes_its_own_topic_and_prints_go_to_standard_output(
    around: Surroundings, capsys: pytest.CaptureFixture[str]
) -> None:
    around.create("orders", partitions=3)
    around.create("customers", "orders-with-customers")
    app = around.app("fk")
    foreign_key_join.build(app)
    app.stream("customers", value=st.Json("name string")).print("new")
    around.send("orders", ("o", {"customer": "c", "item": "tea"}, 1))
    around.send("customers", ("c", {"name": "Ada"}, 2))
    running = around.start(app)
    joined = (b"o", {"item": "tea", "name": "Ada"})
    assert around.records("orders-with-customers", 1) == [joined]
    with Admin(around.bootstrap) as admin:
        topic = "fk-orders-customers-subscriptions"
        assert len(admin.describe_topics(topic)[topic].partitions) == 3
    running.process_all_available()
    assert '[new]: c, {"name":"Ada"}' in capsys.readouterr().out.splitlines()
    around.send("customers", ("c", None, 3))
    assert around.records("orders-with-customers", 2) == [joined, (b"o", None)]


def test_a_stream_is_a_dataframe_of_sparks_for_queries_of_ones_own(around: Surroundings) -> None:
    around.create("df-orders")
    around.send("df-orders", ("a", {"item": "tea", "amount": 1.5}, 1), ("b", {"item": "jam"}, 2))
    orders = around.app("df").stream("df-orders", value=ORDER).filter(lambda o: o.amount > 1)
    rows = orders.to_df().selectExpr("key", "value.amount * 2 as twice")
    query = rows.writeStream.format("memory").queryName("twice").start()
    try:
        query.processAllAvailable()
        assert [tuple(row) for row in rows.sparkSession.table("twice").collect()] == [("a", 3.0)]
    finally:
        query.stop()
