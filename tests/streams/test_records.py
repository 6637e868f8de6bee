"""Operators on single records, run by Spark: on columns, in Python and on DataFrames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ottla.streams as st
from ottla.base.errors import UserError
from ottla.streams.testing import TestRecord, TopologyDriver

Drive = Callable[[st.App], TopologyDriver]
ORDER = st.Json("item string, n int")


def pairs(records: list[TestRecord]) -> list[tuple[Any, Any]]:
    return sorted(((each.key, each.value) for each in records), key=repr)


def test_map_makes_new_keys_and_values_in_columns_and_in_python(drive: Drive) -> None:
    app = st.App("maps")
    orders = app.stream("orders", value=ORDER)
    orders.map(lambda k, o: (o.item, {"was": k, "twice": o.n * 2})).to("columns")
    orders.map(
        lambda k, o: (o.item, {"was": f"{k}", "twice": o.n * 2}),
        schema="was string, twice int",
        key_schema="string",
    ).to("python")
    orders.flat_map(
        lambda o: [(f"{o.item}-{each}", each) for each in range(o.n)],
        schema="int",
        key_schema="string",
    ).to("many")
    driver = drive(app)
    driver.send("orders", {"item": "tea", "n": 2}, key="a", at=1000)
    driver.send("orders", {"item": "jam", "n": 0}, key="b", at=2000)
    columns = driver.read("columns")
    assert pairs(columns) == [
        ("jam", {"was": "b", "twice": 0}),
        ("tea", {"was": "a", "twice": 4}),
    ]
    assert driver.read("python") == columns
    assert driver.read("many") == [TestRecord("tea-0", 0, 1000), TestRecord("tea-1", 1, 1000)]


def test_peek_sees_all_records_and_changes_none(drive: Drive, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def note(key: str, order: Any) -> None:
        with seen.open("a") as file:
            file.write(f"{key}:{order.n};")

    app = st.App("peeks")
    orders = app.stream("orders", value=ORDER).peek(note).repartition(2)
    orders.transform_df(lambda df: df.where("value.n > 1")).to("out")
    driver = drive(app)
    for n in (1, 2, 3):
        driver.send("orders", {"item": "tea", "n": n}, key="k")
    assert [each.value["n"] for each in driver.read("out")] == [2, 3]
    assert seen.read_text() == "k:1;k:2;k:3;"


def test_a_function_over_dataframes_must_return_rows(drive: Drive) -> None:
    app = st.App("frames")
    app.stream("orders", value=ORDER).transform_df(lambda df: df.select("key")).to("out")
    driver = drive(app)
    driver.send("orders", {"item": "tea", "n": 1})
    with pytest.raises(UserError, match=r"transform_df: .* value, timestamp is missing"):
        driver.read("out")


def test_a_dataframe_is_a_stream(drive: Drive, spark: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    times = pa.array([1_000_000, 2_000_000], pa.timestamp("us", "UTC"))
    table = pa.table({"value": pa.array([1, 2]), "timestamp": times})
    pq.write_table(table, tmp_path / "numbers.parquet")
    app = st.App("from-df")
    files = spark.readStream.schema("value bigint, timestamp timestamp").parquet(str(tmp_path))
    rows = files.selectExpr("cast(value as string) as id", "value * 2 as twice", "timestamp")
    numbers = st.from_df(app, rows, key="id")
    assert numbers.columns == ("twice",)
    numbers.map_values(lambda v: {"four": v.twice * 2}).to("out")
    assert app.explain().splitlines()[0] == (
        " 1  from_df  key string, value (twice bigint)  [DataFrame]"
    )
    with pytest.raises(st.TopologyError, match=r"from_df .*unknown column 'key'; columns: id"):
        st.from_df(app, rows)
    with pytest.raises(st.TopologyError, match="must be streaming"):
        st.from_df(app, spark.range(1))
    assert drive(app).read("out") == [
        TestRecord("1", {"four": 4}, 1000),
        TestRecord("2", {"four": 8}, 2000),
    ]


def test_a_filter_deletes_from_a_table_and_a_map_leaves_deleted_what_is(drive: Drive) -> None:
    app = st.App("tables")
    stock = app.table("stock", value=ORDER)
    stock.filter(lambda o: o.n > 0).to("there")
    stock.filter_not(lambda o: bool(o.n > 0)).to("gone")
    stock.map_values(lambda o: {"twice": o.n * 2}).to("columns")
    stock.map_values(lambda o: f"{o.n}", schema="string").to("python")
    driver = drive(app)
    driver.send("stock", {"item": "tea", "n": 1}, key="a")
    driver.send("stock", {"item": "jam", "n": 0}, key="b")
    driver.send("stock", None, key="c")
    tea, jam = {"item": "tea", "n": 1}, {"item": "jam", "n": 0}
    assert pairs(driver.read("there")) == [("a", tea), ("b", None), ("c", None)]
    assert pairs(driver.read("gone")) == [("a", None), ("b", jam), ("c", None)]
    assert pairs(driver.read("columns")) == [("a", {"twice": 2}), ("b", {"twice": 0}), ("c", None)]
    assert pairs(driver.read("python")) == [("a", "1"), ("b", "0"), ("c", None)]


def test_records_for_which_a_function_raises_go_to_a_topic_with_the_reason(drive: Drive) -> None:
    app = st.App("failures", failures=st.DeadLetter("failed"))
    orders = app.stream("orders", value=ORDER)
    kept = orders.filter(lambda o: 10 // o.n > 0)
    kept.map_values(lambda o: {"first": o.item[0]}, schema="first string").to("out")
    kept.flat_map(lambda o: [(o.item, 100 // (o.n - 2))], schema="int", key_schema="string").to(
        "many"
    )
    driver = drive(app)
    for at, item, n in ((1, "tea", 1), (2, "jam", 0), (3, "", 3), (4, "ham", 2)):
        driver.send("orders", {"item": item, "n": n}, key=f"k{at}", at=at)
    assert [each.value for each in driver.read("out")] == [{"first": "t"}, {"first": "h"}]
    assert pairs(driver.read("many")) == [("", 100), ("tea", -100)]
    failed = sorted(driver.read("failed"), key=lambda each: each.timestamp_ms)
    assert [(each.key, each.value, each.timestamp_ms) for each in failed] == [
        (b"k2", b'{"item":"jam","n":0}', 2),
        (b"k3", b'{"item":"","n":3}', 3),
        (b"k4", b'{"item":"ham","n":2}', 4),
    ]
    reasons = [dict(each.headers)["ottla.error.reason"].decode() for each in failed]
    assert reasons[1] == "IndexError: string index out of range"
    assert [each.partition(":")[0] for each in reasons] == [
        "ZeroDivisionError",
        "IndexError",
        "ZeroDivisionError",
    ]


def test_plain_values_and_keys_are_written_and_read_as_json(drive: Drive) -> None:
    app = st.App("plain-through")
    texts = app.stream("texts", value=st.String)
    numbers = texts.map(
        lambda key, text: (int(text), float(text) / 2), key_schema="int", schema="double"
    )
    numbers.to("halves")
    halves = app.stream("halves", key=st.Json("int"), value=st.Json("double"))
    halves.filter(lambda key, half: (key > 2) & (half < 4)).to("out")
    driver = drive(app)
    for text in ("2", "7", "9"):
        driver.send("texts", text)
    assert [(each.key, each.value) for each in driver.read("out")] == [(7, 3.5)]
