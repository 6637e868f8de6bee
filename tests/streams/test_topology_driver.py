"""The driver's guarantee: all records sent before a read are one batch, for every query."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import ottla.streams as st
from ottla.base.errors import UserError
from ottla.streams.testing import TopologyDriver

Drive = Callable[[st.App], TopologyDriver]
CHANCE_S = 3.0
"""Seconds to wait for a batch that must not run: several times what a query needs for one."""


def read(driver: TopologyDriver, topic: str) -> list[tuple[Any, Any]]:
    return sorted(((each.key, each.value) for each in driver.read(topic)), key=repr)


def has_run(driver: TopologyDriver) -> bool:
    progress = (each for query in driver._queries for each in query.recentProgress)
    return any(each["numInputRows"] for each in progress)


def test_a_query_plans_nothing_while_what_was_sent_is_half_there(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = st.App("whole")
    left = app.table("as", value=st.String)
    right = app.table("bs", value=st.String)
    left.join(right, lambda a, b: {"a": a, "b": b}, how="outer").to("out")
    driver = drive(app)
    add = driver._append

    def add_slowly(topic: str, rows: Any) -> None:
        add(topic, rows)
        deadline = time.monotonic() + (CHANCE_S if topic == "as" else 0)
        while time.monotonic() < deadline and not has_run(driver):
            time.sleep(0.05)

    monkeypatch.setattr(driver, "_append", add_slowly)
    driver.send("as", "A", key="1")
    driver.send("bs", "x", key="1")
    assert read(driver, "out") == [("1", {"a": "A", "b": "x"})]


def test_a_query_behind_another_takes_what_that_one_made_with_the_rest(drive: Drive) -> None:
    app = st.App("behind-another")
    meanings = app.table("meanings", value=st.Json("text string"))
    words = app.stream("words", value=st.String)
    words.group_by(lambda word: word).count().to("counts")
    counts = app.table("counts", value=st.Json("count bigint"))
    counts.join(meanings, how="outer").to("out")
    driver = drive(app)
    driver.send("words", "tea")
    driver.send("words", "tea")
    driver.send("meanings", {"text": "a drink"}, key="tea")
    assert read(driver, "out") == [("tea", {"count": 2, "text": "a drink"})]


def test_a_failure_before_a_query_that_waits_is_reported_as_it_is(drive: Drive) -> None:
    app = st.App("failing")
    app.stream("texts", value=st.String).map_values(int, schema="int").to("numbers")
    numbers = app.stream("numbers", value=st.Json("int"))
    numbers.filter(lambda n: n > 0).to("out")
    driver = drive(app)
    driver.send("texts", "seven")
    with pytest.raises(UserError, match=r"topic 'numbers': .*invalid literal"):
        driver.read("out")
