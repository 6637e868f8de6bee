"""Aggregations with state in Python, compared with results worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ottla.streams as st
from ottla.base.errors import UserError
from ottla.streams.testing import TestRecord, TopologyDriver

Drive = Callable[[st.App], TopologyDriver]
ORDER = st.Json("item string, amount double")


def send(driver: TopologyDriver, at_s: float, item: str | None, amount: float | None) -> None:
    driver.send("orders", {"item": item, "amount": amount}, at=round(at_s * 1000))


def by_item(app: st.App) -> st.Grouped:
    return app.stream("orders", value=ORDER).group_by(lambda o: o.item)


def by_window(records: list[TestRecord], name: str = "n") -> list[tuple[Any, ...]]:
    """Return key, start of the window in seconds and one column, or None for a tombstone."""
    return sorted(
        (each.key, each.window_ms[-1] / 1000, each.value and each.value[name]) for each in records
    )


def test_an_initialiser_and_an_adder_keep_any_object_for_each_key(drive: Drive) -> None:
    def add(seen: dict[str, Any], key: str, order: Any) -> dict[str, Any]:
        seen["all"].append(order.amount)
        return {**seen, "key": key}

    def finish(seen: dict[str, Any]) -> dict[str, Any]:
        return {"median": sorted(seen["all"])[len(seen["all"]) // 2], "key": seen["key"]}

    app = st.App("medians")
    table = by_item(app).aggregate(
        lambda: {"all": []}, add, finish=finish, schema="median double, key string"
    )
    table.to("medians")
    by_item(app).reduce(lambda one, other: max(one, other, key=lambda o: o.amount)).to("dearest")
    numbers = app.stream("numbers", value=st.Long)
    numbers.group_by_key().reduce(lambda one, other: one + other).to("sums")
    driver = drive(app)
    for at_s, item, amount in ((1, "tea", 5.0), (2, "jam", 1.0), (3, "tea", 9.0), (0, "tea", 7.0)):
        send(driver, at_s, item, amount)
    send(driver, 9, None, 1.0)
    for key, number in (("a", 2**40), ("b", 1), ("a", 2)):
        driver.send("numbers", number, key=key)
    assert sorted(driver.read("medians"), key=lambda each: each.key) == [
        TestRecord("jam", {"median": 1.0, "key": "jam"}, 2000),
        TestRecord("tea", {"median": 7.0, "key": "tea"}, 3000),
    ]
    dearest = {each.key: each.value["amount"] for each in driver.read("dearest")}
    assert dearest == {"tea": 9.0, "jam": 1.0}
    assert {each.key: each.value for each in driver.read("sums")} == {"a": 2**40 + 2, "b": 1}
    send(driver, 5, "tea", 9.5)
    assert driver.read("medians") == [TestRecord("tea", {"median": 9.0, "key": "tea"}, 5000)]
    assert [each.value["amount"] for each in driver.read("dearest")] == [9.5]


def test_late_records_go_to_a_topic_of_their_own_with_the_reason(drive: Drive) -> None:
    app = st.App("late")
    windowed = by_item(app).windowed(
        st.tumbling("1 minute", grace="10 seconds"), late=st.DeadLetter("late-orders")
    )
    windowed.aggregate(total=st.sum("amount"), n=st.count()).to("totals")
    driver = drive(app)
    send(driver, 0, "tea", 1)
    send(driver, 59.999, "tea", 2)
    send(driver, 69.999, "tea", 4)
    assert by_window(driver.read("totals"), "total") == [("tea", 0, 3.0), ("tea", 60, 4.0)]
    # Stream time is 69.999 s: the first window stays open until 70 s.
    send(driver, 3, "tea", 8)
    send(driver, 70, "jam", 16)
    totals = driver.read("totals")
    assert by_window(totals, "total") == [("jam", 60, 16.0), ("tea", 0, 11.0)]
    assert totals[0].value["window_start"].startswith("1970-01-01T00:0")
    assert driver.read("late-orders") == []
    send(driver, 4, "tea", 32)
    send(driver, 61, "tea", 64)
    assert by_window(driver.read("totals"), "total") == [("tea", 60, 68.0)]
    (late,) = driver.read("late-orders")
    assert (late.key, late.value, late.timestamp_ms) == (
        "tea",
        {"item": "tea", "amount": 32.0},
        4000,
    )
    assert dict(late.headers) == {
        "ottla.error.reason": b"the record came after its windows had closed",
        "ottla.operator": b"aggregate",
    }


def test_python_aggregates_of_windows_come_once_when_they_close(drive: Drive) -> None:
    app = st.App("closed")
    windowed = by_item(app).windowed(st.hopping("1 minute", every="30 seconds"))
    total = windowed.aggregate(lambda: 0.0, lambda total, o: total + o.amount, schema="double")
    total.suppress().to("closed")
    driver = drive(app)
    for at_s, amount in ((31, 1), (59, 2), (60, 4)):
        send(driver, at_s, "tea", amount)
    assert [(each.window_ms, each.value) for each in driver.read("closed")] == [((0,), 3.0)]
    send(driver, 10, "tea", 100)
    assert driver.read("closed") == []
    send(driver, 90, "jam", 8)
    found = driver.read("closed")
    assert [(each.key, each.window_ms, each.value) for each in found] == [("tea", (30_000,), 7.0)]


def test_sliding_windows_hold_each_set_of_records(drive: Drive) -> None:
    """The example of Kafka's documentation, one record at a time."""
    app = st.App("sliding")
    windowed = by_item(app).windowed(st.sliding("5 seconds", grace="30 seconds"))
    windowed.count().to("out")
    driver = drive(app)
    found = []
    for at_s in (8, 9.2, 12.4):
        send(driver, at_s, "alice", 1)
        found.append([(start, n) for _, start, n in by_window(driver.read("out"), "count")])
    assert found == [
        [(3.0, 1)],
        [(4.2, 2), (8.001, 1)],
        [(7.4, 3), (8.001, 2), (9.201, 1)],
    ]


def test_open_sessions_are_given_out_and_replaced_when_they_grow(drive: Drive) -> None:
    app = st.App("sessions")
    windowed = by_item(app).windowed(st.session("10 seconds", grace="1 day"))
    windowed.aggregate(n=st.count(), total=st.sum("amount")).to("out")
    driver = drive(app)

    def read() -> list[Any]:
        found = driver.read("out")
        return [(each.window_ms, each.value and each.value["total"]) for each in found]

    send(driver, 0, "tea", 1)
    send(driver, 20, "tea", 2)
    assert read() == [((0, 0), 1.0), ((20_000, 20_000), 2.0)]
    send(driver, 10, "tea", 4)
    assert read() == [((0, 0), None), ((20_000, 20_000), None), ((20_000, 0), 7.0)]


def test_a_function_with_state_that_raises_stops_the_app_with_its_error(drive: Drive) -> None:
    app = st.App("raises")
    by_item(app).aggregate(lambda: 0, lambda total, o: total + o.amuont, schema="int").to("out")
    driver = drive(app)
    send(driver, 1, "tea", 1)
    with pytest.raises(UserError, match="no column 'amuont'; columns: item, amount"):
        driver.read("out")


def test_an_aggregate_that_does_not_match_its_schema_stops_the_app(drive: Drive) -> None:
    app = st.App("mistyped")
    by_item(app).aggregate(lambda: "", lambda text, o: text + o.item, schema="int").to("out")
    driver = drive(app)
    send(driver, 1, "tea", 1)
    with pytest.raises(UserError, match="the value is not of type int32"):
        driver.read("out")


def test_a_time_limit_lets_one_change_of_a_key_pass_in_a_minute(drive: Drive) -> None:
    app = st.App("limited")
    words = app.stream("words", value=st.String).group_by(lambda word: word)
    words.count().suppress(time_limit="1 minute").to("counts")
    app.table("prices", value=st.Json("n int")).suppress(time_limit="1 minute").to("slow")
    driver = drive(app)
    for at_s in (0, 10, 59):
        driver.send("words", "tea", at=at_s * 1000)
        driver.send("prices", {"n": at_s}, key="tea", at=at_s * 1000)
    assert driver.read("counts") == []
    for topic, value in (("words", "jam"), ("prices", {"n": 1})):
        driver.send(topic, value, key="jam", at=60_000)
    counted, slow = driver.read("counts"), driver.read("slow")
    assert [(each.key, each.value, each.timestamp_ms) for each in counted] == [
        ("tea", {"count": 3}, 59_000)
    ]
    assert [(each.key, each.value) for each in slow] == [("tea", {"n": 59})]
