"""Spark's formats, and functions that return DataFrames, as sources and sinks.

All tests share one Spark session."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.connect import workers
from tests.connect.spark_functions import PLACE, SEEN
from tests.connect.workers import Standalone, send, values, wait_for

from ottla.base.errors import UserError
from ottla.connect import data, session
from ottla.connect.api import RetriableError
from ottla.connect.data import ConnectRecord, struct_schema
from ottla.connect.pipeline import Conversion
from ottla.testing.connectors import SinkKit, SourceKit

JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
pytestmark = pytest.mark.timeout(300)
ORDER = struct_schema(("id", data.INT32), ("city", data.OPTIONAL_STRING))


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Yield the Spark session of the process, or a new one; workers that stop do not close it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "stop", lambda: None)
        patch.setattr(session, "_session", None)
        patch.setattr(workers, "PATIENCE_S", 120.0)
        session.configure({"spark.master": "local[2]"})
        yield session.spark_session()


def order(number: int, city: str | None = "Oslo") -> ConnectRecord:
    value = {"id": number, "city": city}
    return ConnectRecord("t", value, ORDER, partition=0, offset=number, timestamp_ms=number)


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_a_batch_that_comes_again_is_not_in_the_files_twice(
    spark: Any, tmp_path: Path, format_: str
) -> None:
    kit = SinkKit(
        "SparkSink",
        {"format": format_, "path": str(tmp_path / "out"), "partition.by": "city",
         "option.compression": "none"},
    )  # fmt: skip
    kit.put(order(1), order(2, "Rome"))
    kit.repeat(order(1), order(2, "Rome"))
    kit.interrupt(order(3), after=2)
    found = spark.read.format(format_).schema("id INT, city STRING").load(str(tmp_path / "out"))
    assert sorted((row.id, row.city) for row in found.collect()) == [
        (1, "Oslo"), (2, "Rome"), (3, "Oslo"),
    ]  # fmt: skip
    assert {each.name for each in (tmp_path / "out").iterdir()} == {
        "_ottla", "city=Oslo", "city=Rome",
    }  # fmt: skip
    kit.stop()


def test_values_that_do_not_fit_are_reported(spark: Any, tmp_path: Path) -> None:
    given = {"format": "json", "path": str(tmp_path / "out")}
    kit = SinkKit("SparkSink", given, tolerates=True)
    kit.put({"a": 1}, {"a": "text"}, "plain", ConnectRecord("t", {"id": "x", "city": None}, ORDER))
    assert [str(error)[:40] for _, error in kit.reported] == [
        "the values of field a have no common typ",
        "the value.id must be int32, not str",
    ]
    kit.stop()


def test_a_source_of_files_resumes_where_it_stopped(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    spark.range(3).selectExpr("id", "cast(id AS STRING) AS name").write.parquet(str(folder))
    foreign = tmp_path / "checkpoint" / "of somebody else"
    foreign.mkdir(parents=True)
    given = {
        "format": "parquet",
        "path": str(folder),
        "topic": "t",
        "checkpoint.location": str(tmp_path / "checkpoint"),
    }
    kit = SourceKit("SparkSource", given)
    found = kit.take(3)
    assert sorted(each.value["id"] for each in found) == [0, 1, 2]
    assert found[0].value_schema == struct_schema(
        ("id", data.INT64.as_optional()), ("name", data.OPTIONAL_STRING)
    )
    kit.restart()
    more = spark.range(3, 5).selectExpr("id", "'x' AS name").coalesce(1)  # one file makes one batch
    more.write.mode("append").parquet(str(folder))
    # Records that were polled but not committed are read again, unchanged.
    polled = _polled(kit)
    kit.stop()
    kit.crash()
    assert kit.take(2) == polled
    kit.stop()
    spool = tmp_path / "checkpoint" / "spool"
    assert not list(spool.iterdir()), "what is in topics is not kept"
    assert foreign.exists()


MANY = 12_000


def test_many_rows_go_in_columns_from_files_to_a_topic_and_into_files(
    worker: Standalone, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Any] = []
    to_row = Conversion.to_row
    monkeypatch.setattr(
        Conversion, "to_row", lambda self, record: (written.append(record), to_row(self, record))[1]
    )
    rows = spark.range(MANY).coalesce(1).selectExpr(
        "id", "id / 4 AS quarter", "concat('n\"', id) AS name", "timestamp_millis(id) AS at",
        "named_struct('even', id % 2 = 0,"
        " 'day', date_add(DATE'2024-01-01', cast(id AS INT))) AS more",
    )  # fmt: skip
    rows.write.parquet(str(tmp_path / "in"))
    flat = {"transforms": "flat", "transforms.flat.type": "Flatten$Value",
            "transforms.flat.delimiter": "_", "value.converter": "JsonConverter"}  # fmt: skip
    place = {"checkpoint.location": str(tmp_path / "spool")}
    worker.put("in", "SparkSource", format="parquet", path=tmp_path / "in", topic="many",
               **flat, **place)  # fmt: skip
    wait_for(lambda: len(values(worker.bootstrap, "many")) >= MANY)
    messages = [json.loads(each) for each in values(worker.bootstrap, "many")]
    assert len(written) < MANY / 2, "one by one"
    assert [each["field"] for each in messages[0]["schema"]["fields"]] == [
        "id", "quarter", "name", "at", "more_even", "more_day",
    ]  # fmt: skip
    assert sorted((each["payload"] for each in messages), key=lambda each: each["id"]) == [
        {"id": n, "quarter": n / 4, "name": f'n"{n}', "at": n, "more_even": n % 2 == 0,
         "more_day": 19_723 + n}
        for n in range(MANY)
    ]  # fmt: skip
    worker.put("out", "SparkSink", format="parquet", path=tmp_path / "out", topics="many",
               **{"value.converter": "JsonConverter",
                  "consumer.override.max.poll.records": "5000"})  # fmt: skip
    wait_for(lambda: _rows_in(spark, tmp_path / "out") >= MANY)
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("id").collect()
    assert [row.id for row in found] == list(range(MANY))
    assert [row.name for row in found[:2]] == ['n"0', 'n"1']


def _rows_in(spark: Any, folder: Path) -> int:
    # Do not search subfolders: Spark creates and removes them meanwhile.
    has_files = any(folder.glob("part-*"))
    return int(spark.read.parquet(str(folder)).count()) if has_files else 0


def _polled(kit: SourceKit) -> list[ConnectRecord]:
    until = time.monotonic() + 60
    while not (found := kit.poll(commit=False)):
        assert time.monotonic() < until
    return found


def test_rows_move_through_a_worker(spark: Any, worker: Standalone, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    worker.put(
        "function", "SparkFunctionSource", function=f"{PLACE}:lines", topic="spark-lines",
        **{"option.folder": folder, "checkpoint.location": tmp_path / "checkpoint"},
    )  # fmt: skip
    worker.put("seen", "SparkFunctionSink", topics="spark-lines", function=f"{PLACE}:see",
               **{"option.extra": "1"})  # fmt: skip
    wait_for(lambda: sum(len(rows) for _, rows, _ in SEEN) >= 2, "rows")
    rows = sorted((row for _, rows, _ in SEEN for row in rows), key=lambda row: row["offset"])
    assert [(row["topic"], row["key"], row["value"]) for row in rows] == [
        ("spark-lines", "k", "one"), ("spark-lines", "k", "two"),
    ]  # fmt: skip
    assert rows[0]["timestamp"].timestamp() == 1.234
    assert SEEN[0][2] == {"extra": "1"}
    (folder / "b.txt").write_text("three\n")
    wait_for(lambda: values(worker.bootstrap, "spark-lines")[2:] == [b"three"])


def test_a_topic_becomes_a_table(spark: Any, worker: Standalone, tmp_path: Path) -> None:
    send(worker.bootstrap, "to-spark", *(json.dumps({"n": n}).encode() for n in range(10)))
    out = tmp_path / "out"
    worker.put("table", "SparkSink", topics="to-spark", format="parquet", path=out, **JSON)
    wait_for(lambda: list(out.glob("part-*")), "files")
    wait_for(lambda: spark.read.parquet(str(out)).count() == 10, "rows")


@pytest.mark.parametrize(
    ("format_", "message"),
    [
        ("avro", r"needs a package .* spark\.jars\.packages=org\.apache\.spark:spark-avro_2\.13:4"),
        ("delta", r"The format delta needs a package .*packages=io\.delta:delta-spark"),
        ("iceberg", r"The format iceberg needs a package"),
        ("nothing", r"Spark has no format nothing\."),
    ],
)
def test_a_format_that_is_not_there_is_reported(
    spark: Any, tmp_path: Path, format_: str, message: str
) -> None:
    given = {"format": format_, "path": str(tmp_path / "x")}
    with pytest.raises(UserError, match=message):
        SinkKit("SparkSink", given).put({"a": 1})
    source = {**given, "topic": "t", "checkpoint.location": str(tmp_path / "c"), "schema": "a INT"}
    with pytest.raises(UserError, match=message):
        SourceKit("SparkSource", source)


def test_invalid_settings_are_reported(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    source = {
        "format": "parquet",
        "path": str(tmp_path / "empty"),
        "topic": "t",
        "checkpoint.location": str(tmp_path / "c"),
    }
    with pytest.raises(RetriableError, match="set schema, or wait for the first"):
        SourceKit("SparkSource", source)
    function = {"checkpoint.location": str(tmp_path / "c"), "function": f"{PLACE}:batch"}
    with pytest.raises(UserError, match="The DataFrame must be streaming"):
        SourceKit("SparkFunctionSource", function)
    with pytest.raises(UserError, match=r"function no\.such:thing does not exist"):
        SourceKit("SparkFunctionSource", function | {"function": "no.such:thing"})
    with pytest.raises(UserError, match="set path or table"):
        SinkKit("SparkSink", {"format": "parquet"})
