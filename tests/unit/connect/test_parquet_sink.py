"""Tests of a topic as a Parquet data lake: layouts, file rolling, and crashes at every step."""

from __future__ import annotations

import datetime
import decimal
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ottla.base.errors import UserError
from ottla.connect import data
from ottla.connect.connectors.lake_layout import Layout
from ottla.connect.connectors.lake_state import Limits, OpenFile, which_to_roll
from ottla.connect.connectors.parquet_sink import ParquetSink
from ottla.connect.data import ConnectRecord, DataError, Schema, Type, struct_schema
from ottla.testing.connectors import SinkKit, check_sink

NOON_MS = 1_706_961_600_005
ORDER = struct_schema(("id", data.INT32), ("country", data.OPTIONAL_STRING))
FOREVER = {"rotate.interval.ms": "-1"}


def rows(lake: Path) -> list[dict[str, Any]]:
    """Return the rows that readers see: no hidden files, and folder names as columns."""
    found = ds.dataset(lake, format="parquet", partitioning="hive").to_table().to_pylist()
    return sorted(found, key=repr)


def files(lake: Path) -> list[str]:
    return sorted(
        str(each.parent.relative_to(lake))
        for each in lake.rglob("*.parquet")
        if "_ottla" not in each.parts
    )


def sink(lake: Path, folder: Path | None = None, *, tolerates: bool = False, **given: str) -> Any:
    properties = {"path": str(lake), **FOREVER}
    properties |= {name.replace("_", "."): value for name, value in given.items()}
    return SinkKit("ParquetSink", properties, directory=folder, tolerates=tolerates)


def order(number: int, country: str | None = "CZ", offset: int = 0) -> ConnectRecord:
    value = {"id": number, "country": country}
    return ConnectRecord("orders", value, ORDER, partition=0, offset=offset, timestamp_ms=NOON_MS)


def test_files_are_the_same_wherever_a_batch_was_interrupted(tmp_path: Path) -> None:
    lake = tmp_path / "lake"

    def made(folder: Path) -> Any:
        shutil.rmtree(lake, ignore_errors=True)
        return sink(lake, folder, flush_size="3", partitioner_class="FieldPartitioner",
                    partition_field_name="country")  # fmt: skip

    batches = [[order(1), order(2, "SK")], [order(3), order(4)], [order(5, "SK"), order(6, None)]]
    found = check_sink(made, batches, lambda: (rows(lake), files(lake)))
    assert sorted(each["id"] for each in found[0]) == [1, 2, 3, 4, 5, 6]
    assert found[1] == [
        "orders/country=CZ",
        "orders/country=SK",
        "orders/country=__HIVE_DEFAULT_PARTITION__",
    ]


def test_nothing_is_seen_before_its_file_is_whole_and_nothing_disappears(tmp_path: Path) -> None:
    kit = sink(tmp_path, flush_size="3")
    kit.put(order(1), order(2))
    assert files(tmp_path) == []
    kit.put(order(3))
    assert [row["id"] for row in rows(tmp_path)] == [1, 2, 3]
    kit.put(order(4))
    kit.stop()
    assert [row["id"] for row in rows(tmp_path)] == [1, 2, 3, 4]
    assert len(files(tmp_path)) == 2


def test_many_batches_are_one_file(tmp_path: Path) -> None:
    kit = sink(tmp_path, flush_size="1000")
    for number in range(50):
        kit.put(*(order(number * 20 + index) for index in range(20)))
    (made,) = (each for each in tmp_path.rglob("part-*.parquet"))
    assert made.parent == tmp_path / "orders"
    assert pq.read_metadata(made).num_rows == 1000
    assert not list((tmp_path / "_ottla").rglob("*.arrow"))
    kit.stop()


def test_old_files_are_given_out_without_new_records(tmp_path: Path) -> None:
    kit = sink(tmp_path, rotate_interval_ms="50")
    kit.put(order(1))
    until = time.monotonic() + 30
    while not files(tmp_path):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert [row["id"] for row in rows(tmp_path)] == [1]
    kit.stop()


def test_random_crashes_lose_and_double_nothing(tmp_path: Path) -> None:
    chance, lake, written = random.Random(3), tmp_path / "lake", []
    given = {"flush_size": "25", "partitioner_class": "FieldPartitioner",
             "partition_field_name": "country"}  # fmt: skip
    kit = sink(lake, tmp_path, **given)
    for number in range(60):
        size = chance.randrange(8)
        batch = [order(number * 100 + index, chance.choice("abc")) for index in range(size)]
        written += [each.value["id"] for each in batch]
        if chance.random() < 0.5:
            kit.interrupt(*batch, after=chance.randrange(len(batch) + 3))
        else:
            kit.crash()
            kit.put(*batch)
        if chance.random() < 0.2:
            kit.repeat(*batch)
    kit.stop()
    assert sorted(row["id"] for row in rows(lake)) == written


def test_types_are_kept(tmp_path: Path) -> None:
    schema = struct_schema(
        ("price", data.decimal_schema(2)),
        ("at", data.TIMESTAMP_SCHEMA),
        ("day", data.DATE_SCHEMA),
        ("raw", data.BYTES.as_optional()),
        ("tags", Schema(Type.MAP, key_schema=data.STRING, value_schema=data.INT64)),
        ("inner", struct_schema(("x", Schema(Type.ARRAY, value_schema=data.INT32)))),
        ("filled", Schema(Type.INT32, optional=True, default=5)),
    )
    value = {
        "price": decimal.Decimal("1.50"),
        "at": datetime.datetime(2024, 2, 3, 4, 5, 6, 7000, tzinfo=datetime.UTC),
        "day": datetime.date(2024, 2, 3),
        "raw": None,
        "tags": {"a": 1},
        "inner": {"x": [1, 2]},
        "filled": None,
    }
    kit = sink(tmp_path)
    kit.put(ConnectRecord("t", value, schema))
    kit.stop()
    (row,) = rows(tmp_path)
    assert row == {**value, "tags": [("a", 1)], "filled": 5}


def test_schemas_that_change_are_different_files(tmp_path: Path) -> None:
    kit = sink(tmp_path)
    newer = struct_schema(("id", data.INT64))
    for number in (1, 3):
        kit.put(order(number), ConnectRecord("orders", {"id": number + 1}, newer))
    kit.stop()
    sizes = sorted(pq.read_metadata(each).num_rows for each in tmp_path.rglob("part-*.parquet"))
    assert sizes == [2, 2]


def test_values_without_a_schema_have_one_in_common(tmp_path: Path) -> None:
    kit = sink(tmp_path, tolerates=True)
    kit.put({"a": 1, "n": None}, {"b": {"x": 1}})
    kit.put({"a": 1.5, "b": {"y": "z"}}, "text")
    kit.put({"a": "not a number"})
    kit.stop()
    assert kit.reported == []
    tables = [pq.read_table(each) for each in tmp_path.rglob("part-*.parquet")]
    found = [row for table in tables for row in table.to_pylist()]
    without_nulls = [{k: v for k, v in row.items() if v is not None} for row in found]
    assert sorted(without_nulls, key=repr) == sorted(
        [{"a": 1}, {"b": {"x": 1}}, {"a": 1.5, "b": {"y": "z"}}, {"value": "text"},
         {"a": "not a number"}], key=repr,
    )  # fmt: skip


def test_no_record_vanishes_for_want_of_columns(tmp_path: Path) -> None:
    kit = sink(tmp_path, tolerates=True, partitioner_class="FieldPartitioner",
               partition_field_name="country")  # fmt: skip
    kit.put({"country": "a", "n": None}, {"country": "b"}, {"country": "a", "n": None})
    only = struct_schema(("country", data.STRING))
    kit.put(ConnectRecord("t", {"country": "c"}, only))
    kit.stop()
    assert rows(tmp_path) == [{"n": None, "country": "a"}] * 2
    assert [record.value["country"] for record, _ in kit.reported] == ["b", "c"]
    assert {str(error) for _, error in kit.reported} == {"a value has no fields"}


def test_records_that_cannot_be_placed_are_reported(tmp_path: Path) -> None:
    kit = sink(tmp_path, tolerates=True, partitioner_class="FieldPartitioner",
               partition_field_name="country")  # fmt: skip
    bad = ConnectRecord("orders", {"id": "x", "country": "CZ"}, ORDER)
    kit.put(order(1), bad, {"id": 1}, None)
    kit.stop()
    assert [str(error)[:40] for _, error in kit.reported] == [
        "a value has no field country, which name",
        "a record has no value. Set behavior.on.n",
        "the value.id must be int32, not str",
    ]
    assert rows(tmp_path) == [{"id": 1, "country": "CZ"}]
    kit = sink(tmp_path, behavior_on_null_values="ignore")
    kit.put(None)
    kit.stop()


def test_a_task_that_slept_while_another_took_over_changes_nothing(tmp_path: Path) -> None:
    lake, own = tmp_path / "lake", tmp_path / "own"
    own.mkdir()
    sleeper = sink(lake, own, flush_size="3")
    sleeper.put(order(1))
    sleeper.task.begin(1)
    sleeper.task.put([order(2), order(3)])
    asleep = sleeper.task
    sleeper.crash()
    sleeper.task.begin(1)
    sleeper.task.put([order(2), order(3)])
    sleeper.task.end()
    with pytest.raises(OSError, match="No such file"):
        asleep.end()
    with pytest.raises(UserError, match="Another task has taken over"):
        asleep.begin(2)
    asleep.stop()
    sleeper.batch = 1
    sleeper.put(order(4))
    sleeper.stop()
    assert [row["id"] for row in rows(lake)] == [1, 2, 3, 4]
    late = ParquetSink(sleeper.config.connector.settings).make_task(asleep._settings)
    with pytest.raises(UserError, match="Another task has taken over"):
        late.start(own)


def test_offsets_that_were_reset_number_batches_anew(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    kit = sink(lake, tmp_path)
    kit.put(order(1))
    kit.put(order(2))
    kit.stop()
    other = tmp_path / "other"
    other.mkdir()
    kit = sink(lake, other)
    kit.put(order(3))
    kit.stop()
    assert [row["id"] for row in rows(lake)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, "orders"),
        ({"partitioner.class": "DailyPartitioner"}, "orders/year=2024/month=02/day=03"),
        (
            {"partitioner.class": "TimeBasedPartitioner",
             "path.format": "'dt'=YYYY-MM-dd/'hour'=HH", "timezone": "Europe/Prague"},
            "orders/dt=2024-02-03/hour=13",
        ),
        (
            {"partitioner.class": "io.confluent.connect.storage.partitioner.HourlyPartitioner",
             "partition.duration.ms": "86400000"},
            "orders/year=2024/month=02/day=03/hour=00",
        ),
        (
            {"partitioner.class": "DailyPartitioner", "timestamp.extractor": "RecordField",
             "timestamp.field": "day"},
            "orders/year=2023/month=01/day=31",
        ),
        (
            {"partitioner.class": "FieldPartitioner", "partition.field.name": "odd,none"},
            "orders/odd=a%2Fb %3D%25/none=__HIVE_DEFAULT_PARTITION__",
        ),
        ({"partitioner.class": "DailyPartitioner", "timestamp.extractor": "Wallclock"},
         "orders/year=1970/month=01/day=01"),
    ],
)  # fmt: skip
def test_folders(given: dict[str, str], wanted: str) -> None:
    settings = ParquetSink.definition.settings({"path": "p", **given})
    value = {"odd": "a/b =%", "none": None, "day": "2023-01-31T23:59:59Z"}
    record = ConnectRecord("orders", value, timestamp_ms=NOON_MS)
    assert Layout(settings, lambda: 0).folder(record, value) == wanted


def test_a_record_without_its_time_has_no_folder() -> None:
    settings = ParquetSink.definition.settings(
        {
            "path": "p",
            "partitioner.class": "DailyPartitioner",
            "timestamp.extractor": "RecordField",
        }
    )
    for value in ({}, {"timestamp": "soon"}, {"timestamp": True}):
        with pytest.raises(DataError, match=r"field timestamp.* is not a time"):
            Layout(settings, lambda: 0).folder(ConnectRecord("t", value), value)


def test_which_files_are_given_out() -> None:
    limits = Limits(records=10, bytes=100, age_ms=1000, files=2)
    large = OpenFile("a", "", 10, 1, 900)
    heavy = OpenFile("b", "", 1, 100, 900)
    old = OpenFile("c", "", 1, 1, 0)
    young = [OpenFile("d", str(number), 1, 1, 900 - number) for number in range(3)]
    found = which_to_roll([large, heavy, old, *young], limits, 1000)
    assert found == [large, heavy, old, young[2]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "s3://bucket/x"}, "Use SparkSink for object stores"),
        ({"path": "p", "partitioner.class": "FieldPartitioner"}, "requires partition.field.name"),
        ({"path": "p", "timezone": "Nowhere/Else"}, "unknown timezone"),
        ({"path": "p", "partitioner.class": "TimeBasedPartitioner", "path.format": "qq"},
         "letter q"),
        ({}, 'Missing required configuration "path"'),
    ],
)  # fmt: skip
def test_wrong_settings_are_reported(given: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SinkKit("ParquetSink", given)


def test_a_lake_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="Cannot write to"):
        sink(tmp_path / "file")
