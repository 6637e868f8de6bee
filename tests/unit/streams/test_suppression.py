"""Tests of tables suppressed by a time limit: validation, explain(), and emission times."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.streams.test_python_state import Bucket, counts, total

import ottla.streams as st
from ottla.streams.state.folds import of_aggregates
from ottla.streams.state.limits import LatestPerKey, TimeLimited
from ottla.streams.state.program import Output
from ottla.streams.state.totals import Totals
from ottla.streams.state.windows import TimeWindows

COUNT = of_aggregates((("n", st.count()),))


def test_a_change_waits_and_what_follows_takes_its_place_without_waiting_longer() -> None:
    bucket = Bucket(TimeLimited(Totals(total()), 100))
    assert bucket.send(("a", 0, 10), ("a", 1, 30)) == []
    assert bucket.send(("a", 1, 90), ("b", 5, 50)) == []
    assert bucket.send(("c", 1, 110)) == [Output("a", 2, 90)]
    assert bucket.send(("a", 1, 149)) == []
    assert bucket.send(("c", 1, 150)) == [Output("b", 5, 50)]
    assert bucket.send(("d", 1, 1000)) == [Output("c", 2, 150), Output("a", 3, 149)]


def test_what_comes_in_the_batch_in_which_a_change_is_due_goes_with_it() -> None:
    bucket = Bucket(TimeLimited(LatestPerKey(), 100))
    assert bucket.send(("a", "x", 0), ("b", "y", 100)) == [Output("a", "x", 0)]
    assert bucket.send(("a", "z", 50), ("b", "w", 300)) == [
        Output("a", "z", 50),
        Output("b", "w", 300),
    ]


def test_a_deleted_key_is_a_change_and_nothing_is_kept_of_what_is_out() -> None:
    bucket = Bucket(TimeLimited(LatestPerKey(), 100))
    assert bucket.send(("a", "x", 0), ("a", None, 10)) == []
    assert bucket.send(("b", "y", 200)) == [Output("a", None, 10)]
    assert bucket.send(("b", "y", 400)) == [Output("b", "y", 400)]
    assert bucket.state == {}


def test_each_window_of_a_key_waits_for_itself_and_late_records_do_not_wait() -> None:
    windows = TimeWindows(COUNT, 100, 100, 0, is_final=False, emits_late=True)
    bucket = Bucket(TimeLimited(windows, 50))
    assert bucket.send(("a", 1, 10), ("a", 1, 20), ("a", 1, 101)) == [
        Output("a", {"n": 2}, 20, (0, 100))
    ]
    (late,) = bucket.send(("a", "old", 30))
    assert late == Output("a", None, 30, late="old")
    assert counts(bucket.send(("b", 1, 151))) == [("a", (100, 200), 1)]


def words_of(app: st.App) -> Any:
    return app.stream("words", value=st.String).group_by(lambda word: word)


def test_counts_of_spark_become_pythons_and_explain_shows_it() -> None:
    app = st.App("limited")
    table = words_of(app).count().filter(lambda c: c["count"] > 1)
    table.suppress(time_limit="1 minute").to("out")
    assert app.explain().splitlines()[2:] == [
        " 3  aggregate  count=count() by key -> (count bigint)"
        "  [Python state: changes are held until a time limit]",
        " 4  suppress  until a time limit of 1 minute",
        " 5  filter  count > 1, others deleted  [columns]",
        " 6  to  topic out: key string, value json  [appends]",
    ]


def test_a_topics_table_keeps_state_of_its_own_for_it() -> None:
    app = st.App("of-a-topic")
    table = app.table("prices", value=st.Json("price double")).suppress(time_limit="10 s")
    table.to("slow-prices")
    assert " 2  suppress  until a time limit of 10 seconds  [Python state]" in app.explain()
    with pytest.raises(st.TopologyError, match=r"already suppressed; write it with to\(topic\)"):
        table.join(app.table("others", value=st.Json("name string")))


def test_what_cannot_be_suppressed_by_time_is_refused_with_what_can() -> None:
    app = st.App("refused")
    one, other = (app.table(name, value=st.Json(f"{name} int")) for name in ("one", "other"))
    with pytest.raises(st.TopologyError, match=r"already joined; write it with to\(topic\)"):
        one.join(other).suppress(time_limit="1 minute")
    with pytest.raises(st.TopologyError, match="the table is already suppressed"):
        one.suppress(time_limit="1 minute").suppress(time_limit="1 minute")
    with pytest.raises(st.TopologyError, match="time_limit must be at least 1 millisecond"):
        one.suppress(time_limit="0 s")
    with pytest.raises(st.TopologyError, match="only windows close"):
        one.suppress(time_limit="1 minute").suppress()
