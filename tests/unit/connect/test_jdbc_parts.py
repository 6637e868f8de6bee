"""Tests of reading tables in ranges and staging loads in a folder, without a database or Spark."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.errors import UserError
from ottla.connect.connectors.jdbc.part_reader import PartReader
from ottla.connect.connectors.jdbc.parts import TablePart, split
from ottla.connect.connectors.jdbc.source import JdbcSource
from ottla.connect.connectors.jdbc.spool import Spool, part_name, write_rows
from ottla.connect.data import INT64, FailedRecord, struct_schema

SCHEMA = struct_schema(("n", INT64))


@given(
    st.lists(st.none() | st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6), max_size=30),
    st.integers(2, 12),
)
def test_every_row_is_in_one_part_and_in_no_other(values: list[Any], count: int) -> None:
    numbers = [each for each in values if each is not None]
    parts = split(min(numbers, default=None), max(numbers, default=None), count)
    assert 1 <= len(parts) <= count
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (row INTEGER, x)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", enumerate(values))
    found: list[int] = []
    for each in parts:
        question = each.query("x")
        asked = question.statement("row", "t", "", None)
        found += [row for (row,) in connection.execute(asked, question.parameters)]
    assert sorted(found) == list(range(len(values)))
    connection.close()


def test_numbers_and_times_are_cut_into_equal_ranges() -> None:
    assert split(1, 100, 4) == [
        TablePart(0, None, 26), TablePart(1, 26, 51), TablePart(2, 51, 76), TablePart(3, 76, None),
    ]  # fmt: skip
    assert split(5, 5, 4) == [TablePart(0)]
    assert split(5, 6, 4) == [TablePart(0, None, 6), TablePart(1, 6, None)]
    days = [datetime.datetime(2024, 1, day, tzinfo=datetime.UTC) for day in (1, 3, 5)]
    assert [each.lower for each in split(days[0], days[2], 2)] == [None, days[1]]
    dates = [datetime.date(2024, 1, day) for day in (1, 3, 5)]
    assert [each.lower for each in split(dates[0], dates[2], 2)] == [None, dates[1]]
    least, greatest = decimal.Decimal("0.5"), decimal.Decimal("1.5")
    assert split(least, greatest, 2)[1].lower == decimal.Decimal(1)
    assert split(1.0, float("inf"), 4) == [TablePart(0)]
    with pytest.raises(TypeError, match="'a' is neither a number nor a time"):
        split("a", "b", 2)


def write_part(path: Path, rows: list[Any]) -> None:
    with open(path, "wb") as file:
        for first in range(0, len(rows), 2):
            write_rows(file, rows[first : first + 2])


def write_load(spool: Spool, turn: int, *parts: list[Any]) -> None:
    folder = spool.begin(turn)
    for number, rows in enumerate(parts):
        write_part(folder / part_name(number), rows)
    spool.finish(turn, folder, SCHEMA, [len(each) for each in parts])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 100])
def test_a_load_is_given_out_from_wherever_it_was(tmp_path: Path, limit: int) -> None:
    spool = Spool(tmp_path, "s.odd/name", "topic")
    write_load(spool, 0, [(1,), "a word on it", (3,)], [], [(4,), (5,)])
    offset: dict[str, Any] = {}
    found = []
    while offset.get("turn", 0) == 0:
        part = PartReader(spool, 2, lambda: None).next(offset, limit)
        assert part is not None
        records, offset = part
        found += records
    assert [each.value for each in found] == [{"n": 1}, None, {"n": 3}, {"n": 4}, {"n": 5}]
    assert isinstance(found[1], FailedRecord)
    assert found[1].error == "a word on it"
    spool.drop_before(1)
    assert not spool.is_whole(0)
    assert list(tmp_path.glob("*/*")) == []


def test_a_load_that_ends_late_does_not_stand_for_the_one_that_is_given_out(
    tmp_path: Path,
) -> None:
    late, quick = (Spool(tmp_path, "items", "topic") for _ in range(2))
    folder = late.begin(0)
    write_load(quick, 0, [(1,), (2,)])
    reader = PartReader(quick, 2, lambda: None)
    first = reader.next({}, 1)
    write_part(folder / part_name(0), [(7,), (8,)])
    late.finish(0, folder, SCHEMA, [2])
    again = PartReader(late, 2, lambda: None).next({"turn": 0, "rows": 1}, 5)
    assert first is not None
    assert again is not None
    assert [each.value["n"] for each in (*first[0], *again[0])] == [1, 2]
    assert not folder.exists()


def test_a_load_that_lost_rows_is_reported(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "items", "topic")
    write_load(spool, 0, [(1,), (2,), (3,)])
    path = spool.folder(0) / part_name(0)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match="is damaged: only 2 of its 3 rows can be read"):
        PartReader(spool, 2, lambda: None).next({}, 5)


def test_nothing_but_values_is_taken_from_a_file(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "items", "topic")
    now = datetime.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    row = ([decimal.Decimal("1.5"), now, now.date(), now.time(), {"a": b"b"}, None],)
    write_load(spool, 0, [row])
    part = PartReader(spool, 2, lambda: None).next({}, 5)
    assert part is not None
    assert part[0][0].value == {"n": row[0]}
    write_load(spool, 1, [(Path("/"),)])
    with pytest.raises(UserError, match="is not a type of values in rows"):
        PartReader(spool, 2, lambda: None).next({"turn": 1}, 5)


def test_a_load_whose_rest_is_nowhere_is_reported(tmp_path: Path) -> None:
    reader = PartReader(Spool(tmp_path, "items", "topic"), 2, lambda: None)
    with pytest.raises(
        UserError, match=r"checkpoint\.location must be a directory that all workers"
    ):
        reader.next({"turn": 1, "rows": 5}, 10)
    assert reader.next({"turn": 1}, 10) == ([], {"turn": 2})


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"mode": "incrementing", "incrementing.column.name": "id"}, "requires mode=bulk"),
        ({"mode": "bulk", "query": "SELECT 1", "topic.prefix": "t"}, "requires partition.column"),
        ({"mode": "bulk"}, "requires checkpoint.location"),
        ({"mode": "bulk", "num.partitions": "1", "partition.column": "id"}, "of at least 2"),
    ],
)
def test_settings_that_do_not_go_together_are_reported(
    given_: dict[str, str], message: str
) -> None:
    properties = {"connection.url": "jdbc:sqlite:x", "num.partitions": "4", **given_}
    with pytest.raises(ValueError, match=message):
        JdbcSource(JdbcSource.definition.settings(properties))
