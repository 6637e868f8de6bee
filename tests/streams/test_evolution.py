"""Changes of an application over its checkpoint: its topics, and the partitions of its state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.streams.test_on_topics import Shop

import ottla.streams as st
from ottla import Admin
from ottla.base.errors import UserError
from ottla.streams import run
from ottla.streams.checkpoint import LocalFiles
from ottla.streams.state_partitions import PARTITIONS, StatePartitions, stored_partitions
from ottla.testing.broker_thread import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def shop(broker: BrokerThread, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(broker, spark, tmp_path)
    yield made
    made.stop()


def merged(app: st.App, *topics: str) -> st.Stream:
    streams = [app.stream(topic, value=st.String) for topic in topics]
    for each in streams[1:]:
        streams[0] = streams[0].merge(each)
    return streams[0]


def counting(shop: Shop, name: str, *topics: str, partitions: int | None = None) -> st.App:
    app = shop.app(name)
    if partitions is not None:
        app.spark_settings[PARTITIONS] = str(partitions)
    words = merged(app, *(f"{name}-{each}" for each in topics))
    words.group_by(lambda word: word).count().to(f"{name}-counts")
    return app


def say(shop: Shop, topic: str, *words: str) -> None:
    shop.send(topic, *((None, word.encode(), 1) for word in words))


def process(shop: Shop, app: st.App) -> None:
    running = shop.start(app)
    try:
        running.process_all_available()
    finally:
        running.stop()


def counts(shop: Shop, name: str) -> list[tuple[str, int]]:
    return [(key.decode(), value["count"]) for key, value in shop.records(f"{name}-counts")]


# ------------------------------------------------------------------------------------ topics


def test_a_query_gains_and_loses_topics_over_its_checkpoint(shop: Shop, tmp_path: Path) -> None:
    shop.create("evo-a.x", "evo-b", "evo-counts")
    say(shop, "evo-a.x", "tea", "jam")
    process(shop, counting(shop, "evo", "a.x"))
    assert sorted(counts(shop, "evo")) == [("jam", 1), ("tea", 1)]

    say(shop, "evo-b", "tea")
    process(shop, counting(shop, "evo", "b", "a.x"))
    assert counts(shop, "evo")[2:] == [("tea", 2)], "the new topic, and nothing of the old one"

    for number in range(3):
        say(shop, "evo-b", "tea")
        process(shop, counting(shop, "evo", "b"))
        assert counts(shop, "evo")[-1] == ("tea", 3 + number)

    say(shop, "evo-a.x", "tea")
    process(shop, counting(shop, "evo", "a.x", "b"))
    assert counts(shop, "evo")[-1] == ("tea", 6), "a topic continues where it was lost"
    assert len(counts(shop, "evo")) == 7
    stored = json.loads((tmp_path / "evo" / "evo-counts.sources").read_text())
    assert "a.x" in json.dumps(stored)


def test_a_stateless_query_gains_a_topic_and_writes_nothing_twice(shop: Shop) -> None:
    shop.create("plain-a", "plain-b", "plain-out")

    def app(*topics: str) -> st.App:
        made = shop.app("plain")
        merged(made, *topics).map_values(str.upper, schema="string").to(
            "plain-out", value=st.Json("string")
        )
        return made

    say(shop, "plain-a", "tea")
    process(shop, app("plain-a"))
    say(shop, "plain-b", "jam")
    process(shop, app("plain-a", "plain-b"))
    assert [value for _, value in shop.records("plain-out")] == ["TEA", "JAM"]


def test_a_checkpoint_without_names_is_continued_but_gains_no_topic(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create("old-a", "old-b", "old-counts")
    say(shop, "old-a", "tea")
    with monkeypatch.context() as patched:
        patched.setattr(run, "source_names", lambda *_: None)
        process(shop, counting(shop, "old", "a"))
    (tmp_path / "old" / "old-counts.sources").unlink()  # Ottla 0.1 wrote none
    assert (tmp_path / "old" / "old-counts" / "offsets" / "0").read_text().startswith("v1")

    say(shop, "old-a", "tea")
    process(shop, counting(shop, "old", "a"))
    assert counts(shop, "old") == [("tea", 1), ("tea", 2)]
    with pytest.raises(
        st.TopologyError, match=r"written by Ottla 0\.1, which did not name its sources"
    ):
        process(shop, counting(shop, "old", "a", "b"))


def test_a_query_that_was_stopped_within_a_batch_may_gain_but_not_lose_topics(
    shop: Shop, tmp_path: Path
) -> None:
    shop.create("mid-a", "mid-b", "mid-c", "mid-counts")
    for word in ("tea", "jam"):
        say(shop, "mid-a", word)
        say(shop, "mid-b", word)
        process(shop, counting(shop, "mid", "a", "b"))
    log = tmp_path / "mid" / "mid-counts" / "commits"
    max(log.glob("[0-9]*"), key=lambda each: int(each.name)).unlink()
    with pytest.raises(st.TopologyError, match="cannot lose mid-b yet, because it was stopped wit"):
        process(shop, counting(shop, "mid", "a"))
    say(shop, "mid-c", "tea", "tea")
    process(shop, counting(shop, "mid", "a", "b", "c"))
    assert counts(shop, "mid")[-1] == ("tea", 4)
    assert sorted(counts(shop, "mid")) == [("jam", 2), ("tea", 2), ("tea", 4)]
    process(shop, counting(shop, "mid", "a"))


def test_a_topic_that_returns_is_read_from_where_it_was_left_also_in_new_partitions(
    shop: Shop,
) -> None:
    shop.create("back-a", "back-b", "back-counts")
    say(shop, "back-a", "tea")
    say(shop, "back-b", "tea")
    process(shop, counting(shop, "back", "a", "b"))
    for number in range(2):
        process(shop, counting(shop, "back", "a"))
        for _ in range(3):
            say(shop, "back-a", "jam")
            process(shop, counting(shop, "back", "a"))
        if number == 0:
            with Admin(shop.bootstrap) as admin:
                admin.create_partitions({"back-b": 2})
        say(shop, "back-b", *("tea" for _ in range(10)))
        process(shop, counting(shop, "back", "a", "b"))
        assert counts(shop, "back")[-1] == ("tea", 12 + 10 * number)


def test_a_clock_and_python_state_survive_a_new_topic(shop: Shop) -> None:
    shop.create("clock-a", "clock-b", "clock-out")

    def app(*topics: str) -> st.App:
        made = shop.app("clock")
        merged(made, *topics).process(Alarm, schema="int").to("clock-out", value=st.Json("int"))
        return made

    shop.send("clock-a", ("k", b"x", 1))
    process(shop, app("clock-a"))
    shop.send("clock-b", ("k", b"x", 1))
    process(shop, app("clock-a", "clock-b"))
    assert [value for _, value in shop.records("clock-out")] == [1, 2]


class Alarm(st.Processor):
    count = st.ValueStore()

    def process(self, record: st.Record) -> None:
        self.count.set((self.count.get() or 0) + 1)
        self.forward(self.count.get())

    def on_wall_clock(self, timer: st.Timer) -> None:
        raise AssertionError("no timer is set")


# -------------------------------------------------------------------------------- partitions


def partitions(tmp_path: Path, name: str) -> StatePartitions | None:
    return stored_partitions(LocalFiles(), str(tmp_path / name / f"{name}-counts"))


def test_state_moves_to_another_number_of_partitions(shop: Shop, tmp_path: Path) -> None:
    shop.create("move-a", "move-counts")
    words = [f"word-{number}" for number in range(20)]
    expected: list[tuple[str, int]] = []
    for run_number, number in enumerate((2, 5, 1, None), 1):
        say(shop, "move-a", *words)
        process(shop, counting(shop, "move", "a", partitions=number))
        expected += [(word, run_number) for word in words]
        assert sorted(counts(shop, "move")) == sorted(expected)
    assert partitions(tmp_path, "move") == StatePartitions(1, None)


@pytest.mark.parametrize("build", ["python", "dedup", "join", "session"])
def test_every_kind_of_state_moves(shop: Shop, tmp_path: Path, build: str) -> None:
    shop.create(f"{build}-a", f"{build}-b", f"{build}-counts")

    def app(number: int) -> st.App:
        made = shop.app(build)
        made.spark_settings[PARTITIONS] = str(number)
        words = made.stream(f"{build}-a", value=st.String)
        out = f"{build}-counts"
        if build == "python":
            words.group_by(lambda word: word).aggregate(
                int, lambda total, value: total + 1, schema="bigint"
            ).to(out, value=st.Json("bigint"))
        elif build == "dedup":
            words.deduplicate(lambda word: word, within="1 hour").to(out, value=st.Json("string"))
        elif build == "join":
            other = made.stream(f"{build}-b", value=st.String)
            words.join(other, lambda a, b: a, within="1 minute").to(out, value=st.Json("string"))
        else:
            words.group_by(lambda word: word).windowed(st.session("1 hour")).count().to(out)
        return made

    keys = [f"k{number}" for number in range(12)]
    found: list[Any] = []
    for number in (2, 3):
        shop.send(f"{build}-a", *((key, key.encode(), 1) for key in keys))
        process(shop, app(number))
        found.append(len(shop.records(f"{build}-counts")))
    shop.send(f"{build}-b", *((key, key.encode(), 1) for key in keys))
    process(shop, app(1))
    found.append(len(shop.records(f"{build}-counts")))
    expected = {"python": [12, 24, 24], "dedup": [12, 12, 12], "join": [0, 0, 24]}
    if build in expected:
        assert found == expected[build]
    if build == "python":
        assert {value for _, value in shop.records("python-counts")} == {1, 2}
    assert partitions(tmp_path, build) == StatePartitions(1, None)


def test_an_unfinished_batch_is_finished_before_the_state_moves(shop: Shop, tmp_path: Path) -> None:
    shop.create("half-a", "half-counts")
    say(shop, "half-a", "tea", "jam")
    process(shop, counting(shop, "half", "a", partitions=2))
    say(shop, "half-a", "tea")
    process(shop, counting(shop, "half", "a", partitions=2))
    log = tmp_path / "half" / "half-counts" / "commits"
    max(log.glob("[0-9]*"), key=lambda each: int(each.name)).unlink()
    assert partitions(tmp_path, "half") == StatePartitions(2, 2)
    say(shop, "half-a", "tea")
    process(shop, counting(shop, "half", "a", partitions=3))
    assert sorted(counts(shop, "half")) == [("jam", 1), ("tea", 1), ("tea", 2), ("tea", 3)]
    assert partitions(tmp_path, "half") == StatePartitions(3, None)


def test_an_interrupted_move_is_finished_first(shop: Shop, tmp_path: Path) -> None:
    shop.create("torn-a", "torn-counts")
    say(shop, "torn-a", "tea", "jam")
    process(shop, counting(shop, "torn", "a"))
    path = tmp_path / "torn" / "torn-counts"
    first = path / "offsets" / "0"
    (path / "offsets" / "1").write_text(
        first.read_text().replace(f'"{PARTITIONS}":"1"', f'"{PARTITIONS}":"4"')
    )
    assert partitions(tmp_path, "torn") == StatePartitions(1, 4)
    say(shop, "torn-a", "tea")
    process(shop, counting(shop, "torn", "a"))
    assert sorted(counts(shop, "torn")) == [("jam", 1), ("tea", 1), ("tea", 2)]
    assert partitions(tmp_path, "torn") == StatePartitions(4, None)


def test_an_invalid_number_is_refused(shop: Shop) -> None:
    shop.create("bad-a", "bad-counts")
    app = counting(shop, "bad", "a")
    app.spark_settings[PARTITIONS] = "many"
    with pytest.raises(UserError, match=r"'many' is invalid\. Use an integer of at least 1"):
        process(shop, app)
