"""Tests of the test driver: the order of an application's queries, and its names."""

from __future__ import annotations

import pytest

import ottla.streams as st
from ottla.streams import testing
from ottla.streams.testing import dependency_order


def order(app: st.App) -> list[str]:
    return [sink.topic for sink in dependency_order(app.sinks)]


def test_a_query_comes_behind_those_whose_topics_it_reads() -> None:
    app = st.App("late-source")
    app.stream("b").to("c")
    app.stream("x").to("y")
    app.stream("a").to("b")
    assert order(app) == ["y", "b", "c"]


def test_queries_in_a_circle_come_as_they_were_made() -> None:
    app = st.App("circle")
    app.stream("a").to("b")
    app.stream("b").to("a")
    app.stream("a").to("z")
    assert order(app) == ["b", "a", "z"]


def test_the_former_name_of_test_records_warns() -> None:
    with pytest.warns(DeprecationWarning, match="Use TestRecord"):
        former = testing.Record
    assert former is testing.TestRecord
