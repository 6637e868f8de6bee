"""Processors with wall-clock timers, run by Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.streams.test_on_topics import Shop

import ottla.streams as st
from ottla.streams.testing import TopologyDriver
from ottla.testing.broker_thread import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Drive = Callable[[st.App], TopologyDriver]
WAIT_S = 180.0


class Silence(st.Processor):
    """Processor with state, an event-time timer and a wall-clock timer."""

    last = st.ValueStore()

    def process(self, record: st.Record) -> None:
        self.last.set(record.value)
        self.schedule(record.timestamp_ms + 1000)
        self.schedule_wall_clock("1 minute")

    def on_timer(self, timer: st.Timer) -> None:
        self.forward(f"a second after {self.last.get()}")

    def on_wall_clock(self, timer: st.Timer) -> None:
        self.forward(f"a minute after {self.last.get()}", timestamp_ms=timer.stream_time_ms)


def test_both_clocks_ring_each_by_its_own_time(drive: Drive) -> None:
    app = st.App("clocks")
    app.stream("in", value=st.String).process(Silence, schema="string").to("out")
    driver = drive(app)

    def heard() -> list[tuple[str, str, int]]:
        return [(each.key, each.value, each.timestamp_ms) for each in driver.read("out")]

    driver.send("in", "x", key="a", at=0)
    assert heard() == []
    driver.advance_wall_clock("59 s")
    driver.send("in", "y", key="b", at=1500)
    assert heard() == [("a", "a second after x", 1000)]
    driver.advance_wall_clock("1 s")
    assert heard() == [("a", "a minute after x", 1500)]
    driver.advance_wall_clock("1 hour")
    driver.send("in", "z", key="c", at=9000)
    assert heard() == [("b", "a minute after y", 1500), ("b", "a second after y", 2500)]


class Echo(st.Processor):
    def process(self, record: st.Record) -> None:
        self.schedule_wall_clock("200 ms")

    def on_wall_clock(self, timer: st.Timer) -> None:
        self.forward(timer.at_ms)


@pytest.fixture
def shop(broker: BrokerThread, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(broker, spark, tmp_path)
    yield made
    made.stop()


def test_an_application_rings_when_nothing_comes_any_more(shop: Shop) -> None:
    shop.create("clock-in", "clock-out")
    app = shop.app("by-the-clock")
    app.stream("clock-in", value=st.String).process(Echo, schema="bigint", clock="100 ms").to(
        "clock-out"
    )
    began_ms = time.time() * 1000
    shop.send("clock-in", ("k", b"x", 1))
    running = shop.start(app)
    running.process_all_available()
    (status,) = running.status()
    assert [each.topic for each in status.sources] == ["clock-in"]
    found, deadline = shop.records("clock-out"), time.monotonic() + WAIT_S
    while not found and time.monotonic() < deadline:
        running.process_all_available()
        found = shop.records("clock-out")
    running.stop()
    ((key, rang_ms),) = found
    assert key == b"k"
    assert began_ms <= rang_ms <= time.time() * 1000
