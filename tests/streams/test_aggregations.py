"""Aggregations, windows and late records, compared with results worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

from examples import windowed_totals, word_count

import ottla.streams as st
from ottla.streams.testing import TestRecord, TopologyDriver

Drive = Callable[[st.App], TopologyDriver]
ORDER = st.Json("item string, amount double")
MINUTE = 60_000


def orders(app: st.App) -> st.Stream:
    return app.stream("orders", value=ORDER)


def send(driver: TopologyDriver, at_s: float, item: str | None, amount: float | None) -> None:
    driver.send("orders", {"item": item, "amount": amount}, at=round(at_s * 1000))


def by_window(records: list[TestRecord], name: str = "n") -> list[tuple[str, int, float]]:
    """Return the key, the start of the window in seconds, and one column of each record."""
    return sorted((each.key, each.window_ms[-1] // 1000, each.value[name]) for each in records)


def test_word_count_gives_out_each_change(drive: Drive) -> None:
    app = st.App("words")
    word_count.build(app)
    driver = drive(app)
    driver.send("lines", "all streams lead to Kafka", at=1000)
    driver.send("lines", "hello kafka streams", at=2000)
    counts = {each.key: each.value["count"] for each in driver.read("counts")}
    assert counts == {"all": 1, "streams": 2, "lead": 1, "to": 1, "kafka": 2, "hello": 1}
    driver.send("lines", "KAFKA", at=1500)
    assert driver.read("counts") == [TestRecord("kafka", {"count": 3}, 2000)]
    assert driver.read("counts") == []


def test_aggregates_leave_out_nulls_and_records_without_key_or_value(drive: Drive) -> None:
    app = st.App("aggregates")
    (
        orders(app)
        .group_by(lambda o: o.item)
        .aggregate(
            n=st.count(),
            paid=st.count("amount"),
            total=st.sum("amount"),
            least=st.min("amount"),
            most=st.max("amount"),
            mean=st.mean("amount"),
        )
        .to("out")
    )
    driver = drive(app)
    send(driver, 1, "tea", 2.0)
    send(driver, 2, "tea", None)
    send(driver, 3, "tea", 4.0)
    send(driver, 4, None, 100.0)
    driver.send("orders", None, key="tea", at=5000)
    value = {"n": 3, "paid": 2, "total": 6.0, "least": 2.0, "most": 4.0, "mean": 3.0}
    assert driver.read("out") == [TestRecord("tea", value, 3000)]


def test_tumbling_windows_with_grace_take_late_records_until_they_close(drive: Drive) -> None:
    app = st.App("tumbling")
    windowed_totals.build(app)
    driver = drive(app)
    send(driver, 0, "tea", 11)
    send(driver, 59.999, "tea", 20)
    send(driver, 60, "tea", 30)
    send(driver, 10, "tea", 10)
    both = driver.read("totals")  # Spark does not order windows
    assert by_window(both, "total") == [("tea", 0, 31.0), ("tea", 60, 30.0)]
    first = min(both, key=lambda each: each.window_ms)
    assert first.value["window_start"] == "1970-01-01T00:00:00.000Z"
    assert first.value["window_end"] == "1970-01-01T00:01:00.000Z"
    # Stream time is 60 s: the first window stays open until 70 s.
    send(driver, 5, "tea", 40)
    send(driver, 70, "jam", 12)
    assert by_window(driver.read("totals"), "total") == [("jam", 60, 12.0), ("tea", 0, 71.0)]
    # Stream time is 70 s: the first window is closed.
    send(driver, 59, "tea", 50)
    send(driver, 61, "tea", 50)
    assert by_window(driver.read("totals"), "total") == [("tea", 60, 80.0)]


def test_suppressed_windows_come_once_when_they_close(drive: Drive) -> None:
    app = st.App("suppressed")
    windowed = orders(app).group_by(lambda o: o.item).windowed(st.tumbling("1 minute"))
    windowed.count().suppress().to("closed")
    driver = drive(app)
    for at_s in (1, 2, 61):
        send(driver, at_s, "tea", 1)
    assert by_window(driver.read("closed"), "count") == [("tea", 0, 2)]
    send(driver, 3, "tea", 1)
    send(driver, 62, "tea", 1)
    assert driver.read("closed") == []
    send(driver, 120, "jam", 1)
    assert by_window(driver.read("closed"), "count") == [("tea", 60, 2)]


def test_hopping_windows_overlap(drive: Drive) -> None:
    app = st.App("hopping")
    window = st.hopping("60 seconds", every="20 seconds", grace="1 day")
    orders(app).group_by(lambda o: o.item).windowed(window).aggregate(n=st.count()).to("out")
    driver = drive(app)
    times_s = (0, 19, 20, 65, 100)
    for at_s in times_s:
        send(driver, at_s, "tea", 1)
    expected = []
    for start_s in range(-60, 120, 20):
        inside = sum(start_s <= at_s < start_s + 60 for at_s in times_s)
        expected += [("tea", start_s, inside)] if inside else []
    assert by_window(driver.read("out")) == expected


def test_sessions_merge_over_gaps_and_end_with_their_last_record(drive: Drive) -> None:
    app = st.App("sessions")
    windowed = orders(app).group_by(lambda o: o.item).windowed(st.session("10 seconds"))
    windowed.aggregate(n=st.count()).suppress().to("out")
    driver = drive(app)
    for at_s in (0, 20, 10, 31, 100):
        send(driver, at_s, "tea", 1)
    found = driver.read("out")
    # A gap of exactly 10 s joins, one of 11 s does not; the last session is open.
    assert [(each.window_ms, each.value["n"]) for each in found] == [
        ((20_000, 0), 3),
        ((31_000, 31_000), 1),
    ]
    assert found[0].value["window_end"] == "1970-01-01T00:00:20.000Z"


def test_duplicates_are_dropped_within_a_time(drive: Drive) -> None:
    app = st.App("dedup")
    orders(app).deduplicate(lambda o: o.item, within="10 seconds").to("out")
    driver = drive(app)
    for at_s, amount in ((100, 1), (101, 2)):
        send(driver, at_s, "tea", amount)
    assert [each.value["amount"] for each in driver.read("out")] == [1.0]
    send(driver, 105, "tea", 3)
    send(driver, 105, "jam", 4)
    assert [each.value["amount"] for each in driver.read("out")] == [4.0]
    send(driver, 130, "ham", 5)
    assert [each.value["amount"] for each in driver.read("out")] == [5.0]
    send(driver, 131, "tea", 6)
    assert [each.value["amount"] for each in driver.read("out")] == [6.0]


def test_event_time_comes_from_a_field(drive: Drive) -> None:
    app = st.App("time")
    events = app.stream("events", value=st.Json("at bigint, n int"), time=lambda e: e.at)
    events.group_by(lambda e: "all").windowed(st.tumbling("1 minute")).count().to("out")
    driver = drive(app)
    driver.send("events", {"at": 5 * MINUTE + 1, "n": 1}, at=0)
    (found,) = driver.read("out")
    assert (found.window_ms, found.timestamp_ms) == ((5 * MINUTE,), 5 * MINUTE + 1)
