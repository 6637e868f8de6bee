"""Tests of which changes of a topology a checkpoint survives. No Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import ottla.streams as st
from ottla.streams.checkpoint import LocalFiles, check_topology, source_names
from ottla.streams.evolution import (
    Change,
    Left,
    SourceNames,
    Stored,
    change_between,
    from_text,
    leave,
    shape_of,
    to_text,
)

Build = Callable[[st.App], object]
JSON = st.Json("item string, amount double")


def read(app: st.App, *topics: str) -> st.Stream:
    first, *others = (app.stream(topic, value=JSON) for topic in topics)
    for each in others:
        first = first.merge(each)
    return first


def totals(stream: st.Stream) -> None:
    stream.group_by(lambda o: o.item).aggregate(n=st.count()).to("out")


def change(before: Build, now: Build) -> Change | None:
    shapes = []
    for build in (before, now):
        app = st.App("app")
        build(app)
        shape = shape_of(app.sinks[0])
        assert shape is not None
        assert from_text(to_text(Stored(shape, {}))) == Stored(shape, {})
        shapes.append(shape)
    return change_between(shapes[0], shapes[1])


def test_topics_may_come_and_go_beside_one_that_remains() -> None:
    found = change(lambda a: totals(read(a, "a", "b")), lambda a: totals(read(a, "c", "b")))
    assert found == Change(("c",), ("a",))


def test_operators_without_state_may_be_before_or_after_a_merge() -> None:
    def after(app: st.App) -> None:
        totals(read(app, "a", "b").filter(lambda o: o.amount > 1))

    def before(app: st.App) -> None:
        streams = [read(app, each).filter(lambda o: o.amount > 1) for each in "abc"]
        totals(streams[0].merge(streams[1]).merge(streams[2]))

    assert change(after, before) == Change(("c",), ())


def test_a_topic_may_come_with_operators_of_its_own() -> None:
    def now(app: st.App) -> None:
        other = app.stream("b", value=st.String).map_values(lambda v: {"item": v, "amount": 1.0})
        totals(read(app, "a").merge(other))

    assert change(lambda a: totals(read(a, "a")), now) == Change(("b",), ())


def join(app: st.App, *lefts: str) -> None:
    left, right = read(app, *lefts), app.stream("right", value=st.String)
    left.join(right, lambda a, b: a.item, within="1 minute").to("out", value=st.Json("string"))


def test_each_side_of_a_join_keeps_a_topic() -> None:
    assert change(lambda a: join(a, "a"), lambda a: join(a, "a", "b")) == Change(("b",), ())
    assert change(lambda a: join(a, "a"), lambda a: join(a, "b")) is None


@pytest.mark.parametrize(
    ("before", "now"),
    [
        # no topic remains
        (lambda a: totals(read(a, "a")), lambda a: totals(read(a, "b"))),
        # another order could exchange the offsets of two reads of one topic
        (lambda a: totals(read(a, "a", "b")), lambda a: totals(read(a, "b", "a"))),
        # a topic that is read twice
        (lambda a: totals(read(a, "a", "b")), lambda a: totals(read(a, "a", "b", "a"))),
        # other operators
        (
            lambda a: totals(read(a, "a")),
            lambda a: totals(read(a, "a").filter(lambda o: o.amount > 1)),
        ),
        (
            lambda a: totals(read(a, "a")),
            lambda a: read(a, "a").group_by(lambda o: o.item).count().to("out"),
        ),
        (
            lambda a: totals(read(a, "a")),
            lambda a: totals(a.stream("a", value=st.Json("item string, amount bigint"))),
        ),
    ],
)  # fmt: skip
def test_other_changes_are_refused(before: Build, now: Build) -> None:
    assert change(before, now) is None


def test_streams_of_the_user_have_no_names() -> None:
    app = st.App("app")
    read(app, "a").transform_df(lambda rows: rows).to("out")
    assert shape_of(app.sinks[0]) is None
    assert from_text(to_text(None)) is None
    assert from_text(None) is None


def test_names_are_valid_for_spark_and_differ() -> None:
    names = SourceNames({})
    topics = ["orders", "orders", "a.b", "a-b", "a_b", "a_2eb"]
    assert [names.next_read(topic)[0] for topic in topics] == [
        "orders", "orders__2", "a_2eb", "a_2db", "a_5fb", "a_5f2eb",
    ]  # fmt: skip


def test_a_topic_that_returns_continues_under_a_new_name() -> None:
    offsets = {"a": {"a": {"0": 5}}, "a__2": {"a": {"0": 6}}, "b": {"b": {"0": 1}}}
    left = leave(["a"], {}, offsets)
    assert left == {"a": Left(1, ({"a": {"0": 5}}, {"a": {"0": 6}}))}
    names = SourceNames(left)
    assert [names.next_read("a"), names.next_read("b"), names.next_read("a")] == [
        ("a__again1", {"a": {"0": 5}}),
        ("b", None),
        ("a__2__again1", {"a": {"0": 6}}),
    ]
    assert leave(["a"], left, {"b": {}})["a"] == Left(2, left["a"].offsets), "no batch between"
    again = leave(["a"], left, {"a__again1": {"a": {"0": 9}}})
    assert SourceNames(again).next_read("a") == ("a__again2", {"a": {"0": 9}})
    app = st.App("app")
    totals(read(app, "a"))
    shape = shape_of(app.sinks[0])
    assert shape is not None
    assert from_text(to_text(Stored(shape, again))) == Stored(shape, again)


def test_a_checkpoint_learns_of_the_change(tmp_path: Path) -> None:
    def app(*topics: str) -> st.App:
        made = st.App("shop", state_dir=tmp_path)
        totals(read(made, *topics))
        return made

    def check(*topics: str) -> Change | None:
        made = app(*topics).application()
        return check_topology(made, made.sinks[0], LocalFiles())

    assert check("a") is None
    checkpoint = tmp_path / "shop" / "out"
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
    assert check("a", "b") == Change(("b",), ())
    assert check("a", "b") is None
    settings = '{"conf":{}}'
    (checkpoint / "offsets" / "7").write_text(
        f'v2\n{settings}\na:{{"a":{{"0":3}}}}\nb:{{"b":{{}}}}'
    )
    with pytest.raises(st.TopologyError, match="cannot lose a yet"):
        check("b")
    (checkpoint / "commits" / "7").write_text("v1\n{}")
    assert check("b") == Change((), ("a",))
    made = app("a", "b").application()
    assert check("a", "b") == Change(("a",), ())
    names = source_names(made, made.sinks[0], LocalFiles())
    assert names is not None
    assert names.next_read("a") == ("a__again1", {"a": {"0": 3}})
