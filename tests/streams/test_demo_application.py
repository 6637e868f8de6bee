"""The application of `ottla demo`, compiled to Spark."""

from __future__ import annotations

from collections.abc import Callable

import ottla.streams as st
from ottla.cli.demo.application import COUNTS, LINES, WINDOWS, build
from ottla.streams.testing import TopologyDriver


def test_words_are_counted_in_all_and_by_ten_seconds(
    drive: Callable[[st.App], TopologyDriver],
) -> None:
    app = st.App("demo")
    build(app)
    driver = drive(app)
    driver.send(LINES, "Tea or  tea", at="2026-01-01T00:00:01Z")
    driver.send(LINES, "tea", at="2026-01-01T00:00:11Z")
    counts = {each.value["word"]: each.value["seen"] for each in driver.read(COUNTS)}
    assert counts == {"tea": 3, "or": 1}
    windows = {
        (each.value["word"], each.value["from"][11:19]): each.value["seen"]
        for each in driver.read(WINDOWS)
    }
    assert windows == {("tea", "00:00:00"): 2, ("or", "00:00:00"): 1, ("tea", "00:00:10"): 1}
