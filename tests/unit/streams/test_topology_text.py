"""Tests of the exact text of topologies, with at least one for each operator.

An application stores the text of its topology beside its checkpoint and refuses to continue from
another one. A change of a file in `topologies` therefore breaks every application that uses the
operator. Fingerprints of functions depend on the version of Python and are left out here."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import ottla.streams as st

ORDER = st.Json("id string, item string, amount double")
FILES = Path(__file__).with_name("topologies")
_FINGERPRINT = re.compile(r"#[0-9a-f]{8}\b")


class Reminder(st.Processor):
    def process(self, record: st.Record) -> None:
        self.forward(record.value.amount)


class Alarm(Reminder):
    def on_wall_clock(self, timer: st.Timer) -> None:
        self.forward(0.0)


def shout(value: object) -> str:
    return str(value).upper()


def words(value: object) -> list[str]:
    return [*map(str, str(value).split())]


def twice(key: object, value: object) -> list[tuple[object, object]]:
    return [(key, value), *[(key, value)]]


def stateless(app: st.App) -> None:
    orders = app.stream("orders", value=ORDER)
    (
        orders.filter(lambda o: o.amount > 10)
        .filter_not(lambda o: o.item == "tea")
        .map_values(lambda o: {"item": o.item.upper(), "cents": o.amount * 100})
        .select_key(lambda v: v.item)
        .map(lambda key, v: (v.item, v.cents))
        .peek(print)
        .repartition(4)
        .to("columns")
    )
    (
        orders.filter(lambda o: bool(o.amount))
        .map_values(shout, schema="string")
        .flat_map_values(words, schema="string")
        .flat_map(twice, schema="string", key_schema="string")
        .map(twice, schema="string", key_schema="string")
        .select_key(shout, schema="string")
        .to("python")
    )
    big = orders.branch(big=lambda o: o.amount > 100)
    big["big"].merge(big["otherwise"]).print("orders")
    lines = app.stream("lines", value=st.String, key=st.Long, start="latest")
    lines.flat_map_values(lambda line: line.lower().split(" ")).to("words", key=st.Long)


def sources(app: st.App) -> None:
    timed = app.stream(
        "orders",
        value=st.Json("id string, at timestamp"),
        time=lambda o: o.at,
        bad_records=st.DeadLetter("bad"),
    )
    timed.to("ids", value=st.Json("id string"))
    app.stream("raw", time=len).to("raw-copy")


def dataframes(app: st.App) -> None:
    orders = app.stream("orders", value=ORDER)
    orders.transform_df(shout, "n bigint", key_schema="bigint").to("frames")


def aggregations(app: st.App) -> None:
    orders = app.stream("orders", value=ORDER)
    by_item = orders.group_by(lambda o: o.item)
    by_item.count().to("counts")
    by_item.aggregate(total=st.sum("amount"), n=st.count(), ids=st.collect_set("id")).to("totals")
    by_item.windowed(st.tumbling("1 minute", grace="5 s")).mean("amount").to("means")
    by_item.windowed(st.hopping("1 minute", every="10 s")).min("amount").suppress().to("least")
    by_item.windowed(st.session("5 s")).count().suppress().to("closed-sessions")
    amounts = orders.map_values(lambda o: o.amount).group_by_key()
    amounts.reduce(lambda one, other: one + other).to("summed")
    amounts.reduce(max).to("most")


def python_aggregations(app: st.App) -> None:
    orders = app.stream("orders", value=ORDER)
    by_item = orders.group_by(lambda o: o.item)
    by_item.windowed(st.session("5 s")).count().to("sessions")
    by_item.windowed(st.sliding("5 s")).max("amount").to("sliding")
    late = by_item.windowed(st.tumbling("1 hour"), late=st.DeadLetter("late"))
    late.count().suppress().to("late-counts")
    by_item.aggregate(int, lambda n, o: n + 1, schema="bigint", finish=abs).to("folded")
    by_item.reduce(lambda one, other: max(one, other, one)).to("reduced")
    by_item.count().suppress(time_limit="10 s").to("limited")
    by_item.windowed(st.tumbling("1 hour")).count().filter(lambda v: v.count > 1).suppress(
        time_limit="1 minute"
    ).to("limited-windows")


def processors(app: st.App) -> None:
    orders = app.stream("orders", value=ORDER)
    orders.process(Reminder, schema="double").to("reminders")
    orders.process(Alarm, schema="double", key_schema="bigint", clock="5 s").to("alarms")
    orders.deduplicate(lambda o: o.id, within="1 hour").to("once")


def joins(app: st.App) -> None:
    orders = app.stream("orders", value=ORDER)
    payments = app.stream("payments", value=st.Json("paid double"))
    users = app.table("users", value=st.Json("name string"))
    names = app.global_table("names", value=st.Json("name string"))
    orders.join(payments, within="5 minutes", grace="1 minute").to("paid")
    orders.join(payments, lambda o, p: o.item, within="1 s", how="outer").to("outer")
    orders.join(users, lambda o, u: {"item": o.item, "who": u.name}, how="left").to("who")
    orders.join(names, on=lambda o: o.id).to("named")
    orders.join(names, on=shout, how="left").to("named-in-python")
    orders.join(names).to("named-by-key")


def tables(app: st.App) -> None:
    users = app.table("users", value=st.Json("name string, city string"))
    cities = app.table("cities", value=st.Json("country string"), bad_records="drop")
    users.filter(lambda u: u.city == "Bled").map_values(lambda u: u.name).to("bled")
    users.filter_not(shout).map_values(shout, schema="string").to("others")
    users.join(cities, how="outer").to("outer")
    users.join(cities, on=lambda u: u.city).to("countries")
    users.join(cities, lambda u, c: shout(u), on=shout, how="left", schema="string").to("loud")
    grouped = users.group_by(lambda u: u.city)
    grouped.count().to("inhabitants")
    grouped.aggregate(int, lambda n, u: n + 1, lambda n, u: n - 1, schema="bigint").to("same")
    cities.suppress(time_limit="1 minute").to_stream().to("slow-cities")


TOPOLOGIES: dict[str, Callable[[st.App], None]] = {
    each.__name__: each
    for each in (
        stateless, sources, dataframes, aggregations, python_aggregations, processors, joins, tables
    )
}  # fmt: skip


def caught(app: st.App) -> None:
    orders = app.stream("orders", value=ORDER)
    orders.map_values(shout, schema="string").filter_not(shout).to("loud")
    users = app.table("users", value=st.Json("name string"))
    users.map_values(shout, schema="string").to("loud-users")


def text_of(app: st.App) -> str:
    text = f"{app.topology()}\n\n---- explain ----\n\n{app.explain()}\n"
    return _FINGERPRINT.sub("#fingerprint", text)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_the_text_of_a_topology_stays_the_same(name: str) -> None:
    app = st.App(name.replace("_", "-"))
    TOPOLOGIES[name](app)
    assert text_of(app) == (FILES / f"{name}.txt").read_text()


def test_the_text_of_a_topology_with_dead_letters_stays_the_same() -> None:
    app = st.App("caught", failures=st.DeadLetter("failed"))
    caught(app)
    assert text_of(app) == (FILES / "caught.txt").read_text()
