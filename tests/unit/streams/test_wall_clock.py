"""Tests of wall-clock processors: timers, validation, and the clock source's offsets."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import ottla.streams as st

pytest.importorskip("pyspark")

from ottla.streams import clock_source
from ottla.streams.clock_source import WallClockReader
from ottla.streams.progress import CLOCK, query_status
from ottla.streams.state.processors import Processing
from ottla.streams.state.program import Batch, Output, State

LIMIT: Any = None


class Watch(st.Processor):
    """Processor that reports a key with no records for a second, and again every second."""

    seen = st.ValueStore(ttl="10 s")
    timer = st.ValueStore()

    def process(self, record: st.Record) -> None:
        self.cancel_wall_clock(self.timer.get())
        self.seen.set(record.value)
        self.timer.set(self.schedule_wall_clock("1 second"))

    def on_wall_clock(self, timer: st.Timer) -> None:
        self.forward(f"last was {self.seen.get()}")
        self.timer.set(self.schedule_wall_clock("1 second"))


def run(
    state: State, records: list[tuple[str, str, int]], clock_ms: int, *, is_tick: bool = True
) -> list[Output]:
    keys, values, times = zip(*records, strict=True) if records else ((), (), ())
    batch = Batch(keys, values, times, [0] * len(keys), clock_ms, is_tick)
    found = list(Processing(Watch).run(state, batch, 7))
    assert pickle.loads(pickle.dumps(state)) == state
    return found


def test_a_timer_rings_with_the_tick_that_reaches_it_unless_it_was_cancelled() -> None:
    state: State = {}
    assert run(state, [("a", "x", 5), ("b", "y", 5)], 1000) == []
    assert Processing(Watch).next_tick_ms(state) == 2000
    assert run(state, [("a", "z", 6)], 1500) == []
    assert run(state, [], 1999) == []
    assert run(state, [], 2000) == [Output("b", "last was y", 2000)]
    assert Processing(Watch).next_tick_ms(state) == 2500
    assert run(state, [], 9000) == [
        Output("a", "last was z", 2500),
        Output("b", "last was y", 3000),
    ], "each once, however long nobody looked"


def test_without_a_tick_no_timer_rings_and_records_of_a_batch_come_first() -> None:
    state: State = {}
    run(state, [("a", "x", 5)], 1000)
    assert run(state, [], 5000, is_tick=False) == []
    assert run(state, [("a", "y", 6)], 5000) == [], "it came in time, as far as we know"
    assert run(state, [], 6000) == [Output("a", "last was y", 6000)]


def test_what_is_written_then_is_written_at_stream_time() -> None:
    class Writer(st.Processor):
        note = st.ValueStore(ttl="1 second")

        def process(self, record: st.Record) -> None:
            self.schedule_wall_clock("1 ms")

        def on_wall_clock(self, timer: st.Timer) -> None:
            self.note.set("rang")

    state: State = {}
    program = Processing(Writer)
    program.run(state, Batch(["k"], [0], [0], [0], 1_000_000, is_tick=False), 100)
    program.run(state, Batch(wall_clock_ms=2_000_000, is_tick=True), 100)
    assert program.next_time_ms(state) == 1100


class ByStreamTime(st.Processor):
    def process(self, record: st.Record) -> None:
        self.schedule_wall_clock("1 second")


def test_a_processor_without_on_wall_clock_has_no_clock() -> None:
    with pytest.raises(TypeError, match="ByStreamTime uses the wall clock, but does not define"):
        Processing(ByStreamTime).run({}, Batch(["k"], [0], [0], [0]), 0)
    stream = st.App("no-clock").stream("in", value=st.String)
    with pytest.raises(
        st.TopologyError, match="clock='5 s' needs on_wall_clock, which ByStreamTime does not"
    ):
        stream.process(ByStreamTime, schema="string", clock="5 s")
    with pytest.raises(st.TopologyError, match="clock must be at least 100 milliseconds"):
        stream.process(Watch, schema="string", clock="1 ms")


def test_explain_shows_the_interval_of_the_clock_and_the_topology_does_not() -> None:
    app = st.App("explained-clock")
    app.stream("in", value=st.String).process(Watch, schema="string", clock="10 s").to("out")
    line = " 2  process  Watch, by the wall clock too -> string: string"
    assert f"{line}  [Python state; the clock every 10 seconds]" in app.explain()
    assert f"{line} #" in app.topology()
    assert "10 seconds" not in app.topology()


def test_the_clock_ticks_at_once_and_then_when_its_time_has_passed_since_the_last_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {"s": 100.0, "ms": 5000}
    monkeypatch.setattr(clock_source.time, "monotonic", lambda: now["s"])
    monkeypatch.setattr(clock_source.time, "time_ns", lambda: now["ms"] * 1_000_000)
    reader = WallClockReader(2000)
    begin = reader.initialOffset()
    first = reader.latestOffset(begin, LIMIT)
    assert first == {CLOCK: 5000}
    (tick,) = reader.partitions(begin, first)
    assert list(reader.read(pickle.loads(pickle.dumps(tick)))) == [(5000,)]
    now["s"] += 60  # its batch takes a minute
    assert reader.latestOffset(first, LIMIT) == first, "there is nothing to do at times"
    assert reader.partitions(first, first) == []
    now["s"] += 1.9
    assert reader.latestOffset(first, LIMIT) == first
    now["s"] += 0.1
    now["ms"] = 10  # the system clock has been set back
    assert reader.latestOffset(first, LIMIT) == {CLOCK: 5001}


def test_the_clock_is_no_source_of_records() -> None:
    read = {"endOffset": '{"in": {"0": 7}}', "numInputRows": 7, "latestOffset": '{"in": {"0": 7}}'}
    clock = {"endOffset": f'{{"{CLOCK}": 5000}}', "numInputRows": 1}
    progress = {"batchId": 1, "sources": [read, clock]}
    status = query_status("out", progress, is_active=True, message="")
    assert [(each.topic, each.rows) for each in status.sources] == [("in", 7)]
