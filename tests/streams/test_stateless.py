"""Stateless operators, run by Spark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import ottla.streams as st
from ottla.base.errors import UserError
from ottla.streams.testing import TopologyDriver

Drive = Callable[[st.App], TopologyDriver]
ORDER = st.Json("id string, item string, amount double, n int")


def test_columns_and_python_give_the_same(drive: Drive) -> None:
    """The same operators, once traced to columns and once in Python, over values and nulls."""
    app = st.App("both")
    orders = app.stream("orders", value=ORDER)
    as_columns = orders.filter(lambda o: o.n % 2 == 1).map_values(
        lambda k, o: {"item": o.item.upper() + "-" + k, "half": o.amount / 2}
    )
    in_python = orders.filter(lambda o: o.n is not None and o.n % 2 == 1).map_values(
        lambda k, o: {"item": f"{o.item.upper()}-{k}", "half": o.amount / 2},
        schema="item string, half double",
    )
    as_columns.select_key(lambda v: v.item.lower()).to("columns")
    in_python.select_key(lambda v: "".join([v.item.lower()]), schema="string").to("python")
    assert "[Python" in app.explain()
    driver = drive(app)
    for key, n in (("a", 1), ("b", 2), ("c", None), ("d", -3)):
        driver.send("orders", {"item": "Tea", "amount": 5.0, "n": n}, key=key, at=1000)
    columns = driver.read("columns")
    assert [(each.key, each.value) for each in columns] == [
        ("tea-a", {"item": "TEA-a", "half": 2.5}),
        ("tea-d", {"item": "TEA-d", "half": 2.5}),
    ]
    assert {each.timestamp_ms for each in columns} == {1000}
    assert driver.read("python") == columns


def test_branches_merge_and_serdes(drive: Drive) -> None:
    app = st.App("branches")
    numbers = app.stream("numbers", value=st.Long, key=st.Long)
    parts = numbers.branch(negative=lambda n: n < 0, small=lambda n: n < 10)
    labelled = [
        parts[name].map_values(lambda k, n, name=name: {"what": name, "n": n, "k": k})
        for name in ("negative", "small", "otherwise")
    ]
    labelled[0].merge(labelled[1]).merge(labelled[2]).to("labelled")
    numbers.map_values(lambda n: n + 1).to("next", value=st.Long, key=st.Long)
    driver = drive(app)
    for n in (-(2**63), -1, 5, 2**62):
        driver.send("numbers", n, key=-n - 1)
    found = driver.read("labelled")
    assert sorted((each.value["n"], each.value["what"], each.key) for each in found) == [
        (-(2**63), "negative", 2**63 - 1),
        (-1, "negative", 0),
        (5, "small", -6),
        (2**62, "otherwise", -(2**62) - 1),
    ]
    assert sorted(each.value for each in driver.read("next")) == [-(2**63) + 1, 0, 6, 2**62 + 1]


def test_lists_become_records_and_tombstones_pass(drive: Drive) -> None:
    app = st.App("lists")
    lines = app.stream("lines", value=st.String)
    lines.flat_map_values(lambda line: line.split(".")).to("parts")
    lines.flat_map_values(
        lambda line: [{"word": word, "length": len(word)} for word in (line or "").split()],
        schema="word string, length int",
    ).to("words")
    lines.to("copy")
    driver = drive(app)
    driver.send("lines", "a.b c.", key="k")
    driver.send("lines", None, key="gone")
    assert [each.value for each in driver.read("parts")] == ["a", "b c", ""]
    assert [each.value for each in driver.read("words")] == [
        {"word": "a.b", "length": 3},
        {"word": "c.", "length": 2},
    ]
    assert [(each.key, each.value) for each in driver.read("copy")] == [
        ("k", "a.b c."),
        ("gone", None),
    ]


def test_bad_records_go_to_a_dead_letter_topic_with_the_reason(drive: Drive) -> None:
    app = st.App("letters")
    app.stream("t", value=st.Json("n int"), bad_records=st.DeadLetter("bad")).to("good")
    driver = drive(app)
    driver.send("t", {"n": 1}, key="a", at=1000)
    driver.send("t", b"{", key="b", at=2000)
    driver.send("t", {"n": 2}, key=b"\xff", at=3000)
    driver.send("t", None, key="gone", at=4000)
    assert [(each.key, each.value) for each in driver.read("good")] == [
        ("a", {"n": 1}),
        ("gone", None),
    ]
    letters = driver.read("bad")
    assert [(each.key, each.value, each.timestamp_ms) for each in letters] == [
        (b"b", b"{", 2000),
        (b"\xff", b'{"n": 2}', 3000),
    ]
    assert [dict(each.headers)["ottla.error.reason"] for each in letters] == [
        b"the value is not a valid json (n int)",
        b"the key is not a valid string string",
    ]
    assert letters[0].headers[1:] == (
        ("ottla.source.topic", b"t"),
        ("ottla.source.partition", b"0"),
        ("ottla.source.offset", b"1"),
    )


def test_bad_records_are_dropped_or_stop_the_app(drive: Drive) -> None:
    bad = (b"{", b"[1]", b'{"n": "x"}')
    app = st.App("drops")
    app.stream("t", value=st.Json("n int"), bad_records="drop").to("kept")
    driver = drive(app)
    for value in (*bad, b'{"n": 1}', None, b"{}"):
        driver.send("t", value)
    assert [each.value for each in driver.read("kept")] == [{"n": 1}, None, {"n": None}]

    app = st.App("stops")
    app.stream("t", value=st.Json("n int")).to("kept")
    driver = drive(app)
    driver.send("t", bad[0])
    with pytest.raises(UserError, match=r"App 'stops', topic 'kept': .*(?i:malformed)"):
        driver.read("kept")
