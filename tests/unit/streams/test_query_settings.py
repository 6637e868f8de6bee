"""Tests of the settings that a query starts with unless the user overrides them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ottla.streams as st
from ottla.streams.operators.topics import Sink
from ottla.streams.query_settings import (
    NO_DATA_BATCHES,
    TRACK_STATE_ROWS,
    query_settings,
    temporary_settings,
    without_user_settings,
)


class Conf(dict[str, str]):
    """Configuration of a Spark session, which includes that of its context."""

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802
        return dict(self)

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        del self[name]


def session(conf: Conf) -> Any:
    return SimpleNamespace(conf=conf)


def windows(app: st.App) -> st.Table:
    words = app.stream("words", value=st.String).group_by(lambda word: word)
    return words.windowed(st.tumbling("1 minute")).count()


def sink_of(app: st.App) -> Sink:
    (found,) = app.sinks
    return found


def test_changes_of_windows_need_no_batch_without_data_and_what_closes_does() -> None:
    changes, closed, own = st.App("changes"), st.App("closed"), st.App("own")
    windows(changes).to("out")
    windows(closed).suppress().to("out")
    words = own.stream("words", value=st.String).transform_df(lambda rows: rows)
    words.group_by_key().count().to("out")
    assert query_settings(sink_of(changes)) == {TRACK_STATE_ROWS: "false", NO_DATA_BATCHES: "false"}
    assert query_settings(sink_of(closed)) == {TRACK_STATE_ROWS: "false"}
    assert query_settings(sink_of(own)) == {TRACK_STATE_ROWS: "false"}, (
        "it may have state of its own"
    )


def test_what_a_user_has_set_stays() -> None:
    settings = {TRACK_STATE_ROWS: "false", NO_DATA_BATCHES: "false"}
    app = st.App("chosen", spark={TRACK_STATE_ROWS: "true"}).application()
    assert without_user_settings(settings, app, session(Conf())) == {NO_DATA_BATCHES: "false"}
    by_submit = session(Conf({NO_DATA_BATCHES: "true"}))
    assert without_user_settings(settings, app, by_submit) == {}


def test_the_session_is_as_it_was_when_the_query_has_started() -> None:
    conf = Conf({NO_DATA_BATCHES: "true"})
    with temporary_settings(session(conf), {NO_DATA_BATCHES: "false", TRACK_STATE_ROWS: "false"}):
        assert conf == {NO_DATA_BATCHES: "false", TRACK_STATE_ROWS: "false"}
    assert conf == {NO_DATA_BATCHES: "true"}
