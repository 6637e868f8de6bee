"""Two operators with state in one query: an aggregation after a join or a deduplication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ottla.streams as st
from ottla.streams.testing import TopologyDriver

START_MS = 1_200_000
Drive = Callable[[st.App], TopologyDriver]


def joined(app: st.App, how: str = "inner") -> Any:
    left, right = (app.stream(name, value=st.Json("n bigint")) for name in ("left", "right"))
    return left.join(
        right, lambda a, b: {"a": a.n, "b": b.n}, how=how, within="10 seconds", grace="5 seconds"
    )


def send(driver: TopologyDriver, topic: str, *rows: tuple[str, int, int]) -> None:
    for key, number, at_s in rows:
        driver.send(topic, {"n": number}, key=key, at=START_MS + at_s * 1000)


def counts(driver: TopologyDriver, topic: str) -> list[tuple[Any, ...]]:
    return sorted(
        ((each.value.get("window_start") or "")[14:19], each.key, each.value["n"])
        for each in driver.read(topic)
    )


def test_windows_count_the_pairs_of_a_join_in_the_same_query(drive: Drive) -> None:
    app = st.App("chain")
    pairs = joined(app).filter(lambda v: v.b >= 0)
    windowed = pairs.group_by_key().windowed(st.tumbling("30 seconds", grace="15 seconds"))
    windowed.aggregate(n=st.count()).to("changes")
    windowed.aggregate(n=st.count()).suppress().to("final")
    assert app.explain().count("[state, in the same query as the inner join]") == 2
    assert len(app.sinks) == 2
    driver = drive(app)
    send(driver, "left", ("k", 1, 0), ("k", 2, 8), ("other", 3, 1))
    send(driver, "right", ("k", 1, 3), ("k", -1, 4))
    assert counts(driver, "changes") == [("20:00", "k", 2)]
    send(driver, "right", ("k", 2, 9), ("other", 4, 40))
    send(driver, "left", ("other", 5, 41))
    assert counts(driver, "changes") == [("20:00", "k", 4), ("20:30", "other", 1)]
    assert counts(driver, "final") == []
    # The join accepts records up to 15 s late, so its windows stay open that long.
    send(driver, "left", ("k", 3, 29))
    send(driver, "right", ("k", 3, 28))
    assert counts(driver, "changes") == [("20:00", "k", 5)]
    for at_s in (100, 200):
        send(driver, "left", ("late", 1, at_s))
        send(driver, "right", ("late", 1, at_s))
        driver.read("changes")
    send(driver, "left", ("k", 4, 29))
    assert counts(driver, "changes") == []
    assert counts(driver, "final")[:2] == [("20:00", "k", 5), ("20:30", "other", 1)]


def test_an_aggregation_without_window_follows_a_join(drive: Drive) -> None:
    app = st.App("chain-totals")
    joined(app).group_by_key().aggregate(n=st.sum("b")).to("totals")
    driver = drive(app)
    send(driver, "left", ("k", 1, 0))
    send(driver, "right", ("k", 5, 1))
    assert counts(driver, "totals") == [("", "k", 5)]
    send(driver, "right", ("k", 7, 2))
    assert counts(driver, "totals") == [("", "k", 12)]


def test_windows_count_the_unpaired_records_of_an_outer_join_when_they_close(
    drive: Drive,
) -> None:
    app = st.App("chain-outer")
    windowed = joined(app, "left").group_by_key().windowed(st.tumbling("30 s", grace="15 s"))
    windowed.aggregate(n=st.count(), b=st.sum("b")).suppress().to("final")
    driver = drive(app)
    send(driver, "left", ("k", 1, 0), ("k", 2, 20), ("lone", 1, 5))
    send(driver, "right", ("k", 5, 1))
    for at_s in (100, 200, 300):
        send(driver, "left", ("end", 1, at_s))
        send(driver, "right", ("end", 1, at_s))
    found = counts(driver, "final")
    assert found[:2] == [("20:00", "k", 2), ("20:00", "lone", 1)]


def test_windows_and_totals_follow_a_deduplication(drive: Drive) -> None:
    app = st.App("chain-dedup")
    once = app.stream("left", value=st.Json("n bigint")).deduplicate(
        lambda v: v.n, within="20 seconds"
    )
    windowed = once.group_by_key().windowed(st.tumbling("30 seconds", grace="20 seconds"))
    windowed.aggregate(n=st.count()).to("windows")
    once.group_by_key().aggregate(n=st.count()).to("totals")
    driver = drive(app)
    send(driver, "left", ("k", 1, 0), ("k", 1, 2), ("k", 2, 10))
    assert counts(driver, "windows") == [("20:00", "k", 2)]
    assert counts(driver, "totals") == [("", "k", 2)]
    send(driver, "left", ("k", 2, 12), ("k", 3, 31), ("k", 4, 25))
    assert counts(driver, "windows") == [("20:00", "k", 3), ("20:30", "k", 1)]
    assert counts(driver, "totals") == [("", "k", 4)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda app: joined(app).group_by_key()
            .windowed(st.tumbling("30 seconds", grace="5 seconds")).aggregate(n=st.count()),
            "accepts records up to 15 seconds late, but the windows only 5 seconds; use grace='15",
        ),
        (
            lambda app: joined(app).group_by_key().windowed(st.session("5 s"))
            .aggregate(n=st.count()),
            "is already joined",
        ),
        (
            lambda app: joined(app).group_by_key().aggregate(dict, lambda v, a: a, schema="n int"),
            "is already joined",
        ),
        (
            lambda app: joined(app).group_by_key().aggregate(n=st.count())
            .suppress(time_limit="5 seconds"),
            "is already joined",
        ),
        (
            lambda app: joined(app, "outer").group_by_key().aggregate(n=st.count()).to("x"),
            r"every change of an aggregation after the outer join; .* with suppress\(\)",
        ),
        (
            lambda app: joined(app).merge(joined(app)).group_by_key().aggregate(n=st.count()),
            "several inputs have state",
        ),
    ],
)  # fmt: skip
def test_what_spark_cannot_combine_is_refused(build: Any, message: str) -> None:
    with pytest.raises(st.TopologyError, match=message):
        build(st.App("refused"))
