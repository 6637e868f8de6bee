"""The examples, compared with results worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples import dedup, fraud, reminder, sessions, stream_table_join

import ottla.streams as st
from ottla.streams.testing import TopologyDriver

Drive = Callable[[st.App], TopologyDriver]
MINUTE, HOUR = 60_000, 3_600_000


def test_sessions(drive: Drive) -> None:
    app = st.App("sessions")
    sessions.build(app)
    driver = drive(app)
    for at, page in ((0, "/"), (10, "/tea"), (50, "/jam")):
        driver.send("clicks", {"page": page}, key="ada", at=at * MINUTE)
    first = driver.read("visits")
    assert [(each.window_ms, each.value["pages"]) for each in first] == [
        ((10 * MINUTE, 0), ["/", "/tea"]),
        ((50 * MINUTE, 50 * MINUTE), ["/jam"]),
    ]
    driver.send("clicks", {"page": "/pay"}, key="ada", at=60 * MINUTE)
    assert [(each.window_ms, each.value and each.value["n"]) for each in driver.read("visits")] == [
        ((50 * MINUTE, 50 * MINUTE), None),
        ((60 * MINUTE, 50 * MINUTE), 2),
    ]


def test_stream_table_join_with_updates(drive: Drive) -> None:
    app = st.App("named")
    stream_table_join.build(app)
    driver = drive(app)

    def order() -> Any:
        driver.send("orders", {"customer": "c", "item": "tea"})
        return driver.read("named-orders")[0].value["name"]

    names = []
    for customer in (None, {"name": "Ada"}, {"name": "Ann"}, None):
        driver.send("customers", customer, key="c")
        names.append(order())
    assert names == ["?", "Ada", "Ann", "?"]


def test_dedup(drive: Drive) -> None:
    app = st.App("dedup")
    dedup.build(app)
    driver = drive(app)
    for at, identity in ((0, "a"), (1, "b"), (2, "a")):
        driver.send("events", {"id": identity, "what": "x"}, at=at * MINUTE)
    driver.process()
    driver.send("events", {"id": "b", "what": "x"}, at=30 * MINUTE)
    driver.send("events", {"id": "c", "what": "x"}, at=31 * MINUTE)
    assert sorted(each.value["id"] for each in driver.read("events-once")) == ["a", "b", "c"]


def test_reminder(drive: Drive) -> None:
    app = st.App("reminder")
    reminder.build(app)
    driver = drive(app)

    def event(order: str, what: str, at_h: float) -> None:
        value = {"what": what, "customer": f"of {order}"}
        driver.send("order-events", value, key=order, at=round(at_h * HOUR))

    event("1", "ordered", 0)
    event("2", "ordered", 1)
    assert driver.read("reminders") == []
    event("2", "paid", 5)
    event("3", "ordered", 24)
    (found,) = driver.read("reminders")
    assert (found.key, found.value) == ("1", {"order": "1", "customer": "of 1"})
    assert found.timestamp_ms == 24 * HOUR
    event("4", "ordered", 26)
    assert driver.read("reminders") == []


def test_fraud(drive: Drive) -> None:
    app = st.App("fraud")
    fraud.build(app)
    driver = drive(app)
    driver.send("sign-ins", {"country": "AT"}, key="card", at=HOUR)
    driver.send("sign-ins", {"country": "DE"}, key="other", at=HOUR)

    def pay(card: str, country: str, amount: float, after: int) -> None:
        value = {"country": country, "amount": amount}
        driver.send("payments", value, key=card, at=HOUR + after * MINUTE)

    for after, amount in ((1, 10.0), (2, 20.0), (11, 1000.0)):
        pay("card", "FR", amount, after)
    pay("other", "DE", 5.0, 1)
    suspicious = driver.read("suspicious-payments")
    assert sorted(each.value["amount"] for each in suspicious) == [10.0, 20.0]
    assert driver.read("blocked-cards") == []
    pay("card", "IT", 30.0, 3)
    pay("card", "IT", 40.0, 4)
    blocked = driver.read("blocked-cards")
    assert [(each.key, each.value) for each in blocked] == [
        ("card", {"payments": 3, "total": 60.0})
    ]
