"""Table joins by key and by foreign key, and lookups in global tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples import foreign_key_join

import ottla.streams as st
from ottla.streams.testing import TopologyDriver

Drive = Callable[[st.App], TopologyDriver]


def read(driver: TopologyDriver, topic: str) -> list[tuple[Any, Any]]:
    return sorted(((each.key, each.value) for each in driver.read(topic)), key=repr)


def test_tables_join_by_key_and_what_is_deleted_is_deleted(drive: Drive) -> None:
    app = st.App("by-key")
    left = app.table("as", value=st.String, key=st.Long)
    right = app.table("bs", value=st.String, key=st.Long)
    for how in ("inner", "outer"):
        left.join(right, lambda a, b: {"a": a, "b": b}, how=how).to(how, key=st.Long)
    left.join(right, lambda a, b: f"{a}{b}", how="left", schema="string").to("left", key=st.Long)
    driver = drive(app)
    driver.send("as", "A", key=1, at=5)
    driver.send("as", "B", key=2, at=5)
    driver.send("bs", "x", key=1, at=7)
    driver.send("bs", "y", key=3, at=3)
    joined = {1: {"a": "A", "b": "x"}, 2: {"a": "B", "b": None}, 3: {"a": None, "b": "y"}}
    assert read(driver, "inner") == [(1, joined[1])]
    assert read(driver, "left") == [(1, "Ax"), (2, "BNone")]
    assert read(driver, "outer") == [(1, joined[1]), (2, joined[2]), (3, joined[3])]
    driver.send("as", None, key=1, at=9)
    driver.send("as", None, key=2, at=9)
    driver.send("as", None, key=4, at=9)
    driver.send("bs", None, key=3, at=9)
    assert read(driver, "inner") == [(1, None)]
    assert read(driver, "left") == [(1, None), (2, None)]
    assert read(driver, "outer") == [(1, {"a": None, "b": "x"}), (2, None), (3, None)]


def test_an_aggregated_table_joins_another_behind_a_topic(drive: Drive) -> None:
    app = st.App("behind")
    words = app.stream("words", value=st.String)
    words.group_by(lambda word: word).count().to("counts")
    counts = app.table("counts", value=st.Json("count bigint"))
    meanings = app.table("meanings", value=st.Json("text string"))
    counts.join(meanings).to("out")
    driver = drive(app)
    for word in ("tea", "jam", "tea"):
        driver.send("words", word)
    driver.send("meanings", {"text": "a drink"}, key="tea")
    assert read(driver, "out") == [("tea", {"count": 2, "text": "a drink"})]


def test_the_foreign_key_join_of_the_examples(drive: Drive) -> None:
    app = st.App("foreign")
    foreign_key_join.build(app)
    driver = drive(app)

    def found() -> dict[str, str | None]:
        records = driver.read("orders-with-customers")
        return {
            each.key: each.value and f"{each.value['item']} {each.value['name']}"
            for each in records
        }

    driver.send("orders", {"customer": "c1", "item": "tea"}, key="o1")
    driver.send("orders", {"customer": "c1", "item": "jam"}, key="o2")
    driver.send("orders", {"customer": "c2", "item": "ham"}, key="o3")
    driver.send("customers", {"name": "Ada"}, key="c1")
    assert found() == {"o1": "tea Ada", "o2": "jam Ada"}
    driver.send("customers", {"name": "Ann"}, key="c1")
    driver.send("customers", {"name": "Bob"}, key="c2")
    assert found() == {"o1": "tea Ann", "o2": "jam Ann", "o3": "ham Bob"}
    driver.send("orders", {"customer": "c2", "item": "tea"}, key="o1")
    driver.send("orders", {"customer": "c9", "item": "jam"}, key="o2")
    driver.send("orders", None, key="o3")
    assert found() == {"o1": "tea Bob", "o2": None, "o3": None}


def test_a_left_foreign_key_join_by_numbers_with_a_python_function(drive: Drive) -> None:
    app = st.App("foreign-left")
    orders = app.table("orders", value=st.Json("customer string, n int"))
    customers = app.table("customers", key=st.Long, value=st.String)
    orders.join(
        customers,
        lambda o, name: {"n": o.n, "name": name},
        on=lambda o: int(o.customer) if o.customer else None,
        how="left",
    ).to("out")
    driver = drive(app)
    driver.send("orders", {"customer": "7", "n": 1}, key="a")
    driver.send("orders", {"customer": None, "n": 2}, key="b")
    driver.send("customers", "Ada", key=7)
    assert read(driver, "out") == [("a", {"n": 1, "name": "Ada"}), ("b", {"n": 2, "name": None})]
    driver.send("orders", {"customer": "7", "n": 3}, key="b")
    assert read(driver, "out") == [("b", {"n": 3, "name": "Ada"})]
    driver.send("customers", None, key=7)
    assert read(driver, "out") == [("a", {"n": 1, "name": None}), ("b", {"n": 3, "name": None})]


def test_records_look_into_a_global_table_by_any_key(drive: Drive) -> None:
    app = st.App("global")
    orders = app.stream("orders", value=st.Json("item string, customer string"))
    customers = app.global_table("customers", value=st.Json("name string"))
    orders.join(customers, on=lambda o: o.customer).to("inner")
    orders.join(
        customers,
        lambda o, c: {"item": o.item, "name": c.name},
        on=lambda o: "".join([o.customer]),
        how="left",
    ).to("left")
    driver = drive(app)
    driver.send("customers", {"name": "Ada"}, key="c1")
    driver.send("orders", {"item": "tea", "customer": "c1"}, key="1")
    driver.send("orders", {"item": "jam", "customer": "c2"}, key="2")
    whole = {"item": "tea", "customer": "c1", "name": "Ada"}
    assert read(driver, "inner") == [("1", whole)]
    assert read(driver, "left") == [
        ("1", {"item": "tea", "name": "Ada"}),
        ("2", {"item": "jam", "name": None}),
    ]


def test_rows_of_a_table_by_another_key_are_subtracted_where_they_were(drive: Drive) -> None:
    app = st.App("regions")
    people = app.table("people", value=st.Json("region string, age int"))
    by_region = people.group_by(lambda p: p.region)
    by_region.count().to("counts")
    by_region.aggregate(
        lambda: 0,
        lambda total, p: total + p.age,
        lambda total, p: total - p.age,
        schema="int",
    ).to("ages")
    driver = drive(app)
    for name, region, age in (("ada", "n", 36), ("bob", "n", 20), ("cy", "s", 50)):
        driver.send("people", {"region": region, "age": age}, key=name)
    assert read(driver, "counts") == [("n", {"count": 2}), ("s", {"count": 1})]
    assert read(driver, "ages") == [("n", 56), ("s", 50)]
    driver.send("people", {"region": "s", "age": 37}, key="ada")
    driver.send("people", {"region": "n", "age": 21}, key="bob")
    driver.send("people", None, key="cy")
    driver.send("people", None, key="nobody")
    assert read(driver, "counts") == [("n", {"count": 1}), ("s", {"count": 1})]
    assert read(driver, "ages") == [("n", 21), ("s", 37)]
