"""Joins, compared with results worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ottla.streams as st
from ottla.streams.testing import TopologyDriver

START_MS = 1_000_000
Drive = Callable[[st.App], TopologyDriver]


def joined(app: st.App, how: str) -> None:
    left = app.stream("left", value=st.String)
    right = app.stream("right", value=st.String)
    made = left.join(
        right, lambda a, b: {"a": a, "b": b}, how=how, within="10 seconds", grace="1 second"
    )
    made.to(how)


def send_pairs(driver: TopologyDriver) -> None:
    for key, value, at_s in (("k", "l0", 0), ("k", "l20", 20), ("other", "l1", 1)):
        driver.send("left", value, key=key, at=START_MS + at_s * 1000)
    driver.send("left", None, key="k", at=START_MS + 5000)
    for key, value, at_s in (("k", "r10", 10), ("k", "r31", 31), ("lone", "r2", 2)):
        driver.send("right", value, key=key, at=START_MS + at_s * 1000)


def pairs(driver: TopologyDriver, topic: str) -> list[tuple[Any, ...]]:
    found = driver.read(topic)
    return sorted(
        (each.key, each.value["a"] or "", each.value["b"] or "", each.timestamp_ms - START_MS)
        for each in found
    )


BOTH = [("k", "l0", "r10", 10_000), ("k", "l20", "r10", 20_000)]


def test_inner_joins_pair_records_within_the_window_at_the_later_time(drive: Drive) -> None:
    app = st.App("inner")
    joined(app, "inner")
    driver = drive(app)
    send_pairs(driver)
    assert pairs(driver, "inner") == BOTH
    # The two records of this pair are in different batches.
    driver.send("right", "r29", key="k", at=START_MS + 29_000)
    assert pairs(driver, "inner") == [("k", "l20", "r29", 29_000)]


def test_outer_joins_give_out_the_unpaired_when_their_window_has_passed(drive: Drive) -> None:
    app = st.App("outer")
    joined(app, "outer")
    driver = drive(app)
    send_pairs(driver)
    found = pairs(driver, "outer")
    assert [each for each in found if each[1] and each[2]] == BOTH
    driver.send("left", "late", key="z", at=START_MS + 100_000)
    driver.send("right", "late", key="y", at=START_MS + 100_000)
    found += pairs(driver, "outer")
    assert sorted(each for each in found if not (each[1] and each[2])) == [
        ("k", "", "r31", 31_000),
        ("lone", "", "r2", 2000),
        ("other", "l1", "", 1000),
    ]


def test_a_stream_joins_what_a_table_holds_with_updates_and_deletes(drive: Drive) -> None:
    app = st.App("enrich")
    orders = app.stream("orders", value=st.Json("n int"))
    names = app.table("names", value=st.Json("name string"))
    orders.join(names).to("inner")
    orders.join(names, lambda o, c: {"n": o.n, "name": c.name}, how="left").to("left")
    driver = drive(app)
    driver.send("names", {"name": "Ada"}, key="a")
    driver.send("names", {"name": "Bob"}, key="b")
    for key in ("a", "b", "c"):
        driver.send("orders", {"n": 1}, key=key)

    def found(topic: str) -> list[tuple[str, int, str | None]]:
        records = driver.read(topic)
        return sorted((each.key, each.value["n"], each.value["name"]) for each in records)

    assert found("inner") == [("a", 1, "Ada"), ("b", 1, "Bob")]
    assert found("left") == [("a", 1, "Ada"), ("b", 1, "Bob"), ("c", 1, None)]
    driver.send("names", {"name": "Ann"}, key="a")
    driver.send("names", None, key="b")
    driver.process()
    for key in ("a", "b"):
        driver.send("orders", {"n": 2}, key=key)
    assert found("inner") == [("a", 2, "Ann")]
    assert found("left") == [("a", 2, "Ann"), ("b", 2, None)]


def test_behind_a_topic_an_aggregation_follows_another(drive: Drive) -> None:
    app = st.App("twice")
    words = app.stream("words", value=st.String)
    changes = words.group_by(lambda word: word).count().to_stream()
    lengths = changes.map_values(lambda word, v: {"word": word, "count": v.count})
    lengths.to("counts")
    counts = app.stream("counts", value=st.Json("word string, count bigint"))
    counts.group_by(lambda v: "all").aggregate(most=st.max("count")).to("most")
    driver = drive(app)
    for word in ("a", "b", "a", "a"):
        driver.send("words", word)
    assert [each.value for each in driver.read("most")] == [{"most": 3}]
