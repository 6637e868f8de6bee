"""Tests of files and folders of lines, CSV and JSON, as source and as sink."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.connect import data
from ottla.connect.connectors import file_source
from ottla.connect.data import ConnectRecord, DataError, FailedRecord, struct_schema
from ottla.testing import connectors
from ottla.testing.connectors import SinkKit, SourceKit, check_sink, check_source


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "LIST_EVERY_S", 0.0)
    monkeypatch.setattr(connectors, "POLL_S", 0.0)


def source(path: Path, **given: str) -> SourceKit:
    name = "directory" if path.is_dir() else "file"
    properties = {name: str(path), "topic": "t"}
    return SourceKit("FileSource", properties | {k.replace("_", "."): v for k, v in given.items()})


def values(kit: SourceKit, polls: int = 6) -> list[Any]:
    return [each.value for _ in range(polls) for each in kit.poll()]


def append(path: Path, text: str) -> None:
    with open(path, "a") as out:
        out.write(text)


# ------------------------------------------------------------------------------------- sources


def test_rows_of_csv_are_structs_named_by_the_header(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes(b'\xef\xbb\xbfid,name\r\n1,"a, ""b"""\r\n\r\n2,"two\nlines"\r\n3,op')
    kit = source(file, format="csv")
    records = kit.take(2)
    assert [each.value for each in records] == [
        {"id": "1", "name": 'a, "b"'},
        {"id": "2", "name": "two\nlines"},
    ]
    data.check(records[0].value_schema, records[0].value)
    append(file, "en\n")
    assert values(kit) == [{"id": "3", "name": "open"}]


def test_a_restart_in_the_middle_of_csv_knows_the_header(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("id;n\n" + "".join(f"{number};NULL\n" for number in range(10)))
    given = {"format": "csv", "csv.delimiter": ";", "csv.null": "NULL", "batch.size": "3"}

    def made(offsets: Any) -> SourceKit:
        properties = {"file": str(file), "topic": "t", **given}
        return SourceKit("FileSource", properties, offsets=offsets)

    whole = check_source(made, 10)
    assert [each.value for each in whole] == [{"id": str(n), "n": None} for n in range(10)]


def test_csv_without_a_header_needs_names(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("1\t2\n")
    given = {"format": "csv", "csv_header": "false", "csv_delimiter": "\\t"}
    with pytest.raises(UserError, match=r"csv\.header=false requires csv\.fields"):
        source(file, **given)
    assert values(source(file, **given, csv_fields="a,b")) == [{"a": "1", "b": "2"}]


def test_a_new_file_has_a_new_header(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("a,b\n1,2\n")
    kit = source(file, format="csv")
    assert values(kit) == [{"a": "1", "b": "2"}]
    file.rename(tmp_path / "old")
    file.write_text("c\n3\n")
    assert values(kit) == [{"c": "3"}]


def test_lines_of_json_are_values_without_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"a": [1, null]}\n\n7\n')
    assert values(source(file, format="json")) == [{"a": [1, None]}, 7]


def test_what_cannot_be_read_fails_alone(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes(b"a,b\n1,2\n3\n\xff,5\n6,7\n")
    records = source(file, format="csv").take(4)
    assert [each.value for each in records if not isinstance(each, FailedRecord)] == [
        {"a": "1", "b": "2"},
        {"a": "6", "b": "7"},
    ]
    failed = [each.error for each in records if isinstance(each, FailedRecord)]
    assert failed == [
        f"{file}: a row has 1 cells, but there are 2 fields",
        f"{file}: a line is not UTF-8: invalid start byte",
    ]
    with pytest.raises(DataError, match="1 cells"):
        source(file, format="csv").rows(records)


def test_all_files_of_a_folder_are_read_and_followed(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", "_hidden.log", ".x.log", "other.txt"):
        (tmp_path / name).write_text(f"{name} 1\n")
    (tmp_path / "sub.log").mkdir()
    kit = source(tmp_path, file_pattern="*.log")
    assert values(kit) == ["a.log 1", "b.log 1"]
    append(tmp_path / "a.log", "a.log 2\n")
    (tmp_path / "c.log").write_text("c.log 1\nhalf")
    assert sorted(values(kit)) == ["a.log 2", "c.log 1"]
    kit.crash()
    assert values(kit) == []
    append(tmp_path / "c.log", " a line\n")
    assert values(kit) == ["half a line"]


def test_a_file_that_is_renamed_in_its_folder_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("1\n2\n")
    kit = source(tmp_path)
    assert values(kit) == ["1", "2"]
    (tmp_path / "app.log").rename(tmp_path / "app.log.1")
    append(tmp_path / "app.log.1", "3\n")
    (tmp_path / "app.log").write_text("4\n")
    assert sorted(values(kit)) == ["3", "4"]
    (tmp_path / "app.log.1").unlink()
    append(tmp_path / "app.log", "5\n")
    assert values(kit) == ["5"]
    ((_, offset),) = kit.offsets
    assert list(offset["files"]) == ["app.log"], "a file that is gone is forgotten"


def test_a_last_line_without_a_newline_is_taken_when_its_file_rests(tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("a\nb")
    assert values(source(tmp_path)) == ["a"]
    kit = source(tmp_path, unterminated_after_ms="1000")
    assert values(kit) == ["a"]
    os.utime(file, (1, 1))
    assert values(kit) == ["b"]
    kit.crash()
    append(file, "\nc\n")
    assert values(kit) == ["c"], "the newline that came late is no empty line"


def test_random_growth_restarts_and_renames_lose_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(5)
    kit, written, read = source(tmp_path, batch_size="7"), [], []
    for turn in range(120):
        name = f"{chance.randrange(4)}.txt"
        lines = [f"{turn}-{index}" for index in range(chance.randrange(12))]
        append(tmp_path / name, "".join(f"{line}\n" for line in lines))
        written += lines
        read += [each.value for each in kit.poll()]
        if chance.random() < 0.2:
            kit.poll(commit=False)
            kit.crash()
        if chance.random() < 0.1:
            (tmp_path / name).rename(tmp_path / f"{turn}.txt")
    read += values(kit, 200)
    assert sorted(read) == sorted(written)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "set exactly one of file and directory"),
        ({"file": "a", "directory": "b"}, "set exactly one of file and directory"),
        ({"file": "a", "csv.quote": "ab"}, "csv.quote must be a single character"),
        ({"file": "a", "format": "xml"}, "format"),
    ],
)
def test_wrong_settings_are_reported(given: dict[str, str], message: str) -> None:
    for name in ("FileSource", "FileSink"):
        kit: Any = SourceKit if name == "FileSource" else SinkKit
        with pytest.raises(UserError, match=message):
            kit(name, {"topic": "t", **given})


def test_offsets_that_a_person_sets_are_checked(tmp_path: Path) -> None:
    connector: Any = source(tmp_path).config.connector
    connector.check_offset({"directory": str(tmp_path)}, {"files": {"a": {"position": 0}}})
    for offset in ({}, {"files": {"a": {"position": -1}}}, {"files": {"a": 7}}):
        with pytest.raises(ValueError, match="offset"):
            connector.check_offset({"directory": str(tmp_path)}, offset)
    with pytest.raises(ValueError, match="directory"):
        connector.check_offset({"filename": "x"}, {"position": 0})


# --------------------------------------------------------------------------------------- sinks


@pytest.mark.parametrize(
    ("format_", "wanted"),
    [
        ("lines", '{"id":1,"name":"a"}\n{"id":2,"name":null}\n{"id":3,"name":"x,y"}\n'),
        ("json", '{"id":1,"name":"a"}\n{"id":2,"name":null}\n{"id":3,"name":"x,y"}\n'),
        ("csv", 'id,name\n1,a\n2,\n3,"x,y"\n'),
    ],
)
def test_a_batch_that_comes_again_replaces_itself(
    tmp_path: Path, format_: str, wanted: str
) -> None:
    file = tmp_path / "out"

    def made(folder: Path) -> SinkKit:
        file.unlink(missing_ok=True)
        return SinkKit("FileSink", {"file": str(file), "format": format_}, directory=folder)

    batches = [[{"id": 1, "name": "a"}, {"id": 2, "name": None}], [], [{"id": 3, "name": "x,y"}]]
    assert check_sink(made, batches, file.read_text) == wanted


def test_each_topic_has_files_of_its_own_that_roll(tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def made(own: Path) -> SinkKit:
        for each in folder.glob("*"):
            each.unlink()
        given = {"directory": str(folder), "format": "json", "file.max.bytes": "10"}
        return SinkKit("FileSink", given, directory=own)

    def read() -> dict[str, str]:
        return {each.name: each.read_text() for each in sorted(folder.iterdir())}

    batches = [
        [
            ConnectRecord("a", {"n": 1}),
            ConnectRecord("b.c", {"n": 2}),
            ConnectRecord("a", {"n": 3}),
        ],
        [ConnectRecord("a", {"n": 4}), ConnectRecord("b.c", {"n": 5})],
        [ConnectRecord("a", {"n": 6}), ConnectRecord("b.c", {"n": 7})],
    ]
    assert check_sink(made, batches, read) == {
        "a-00000.jsonl": '{"n":1}\n{"n":3}\n',
        "a-00001.jsonl": '{"n":4}\n{"n":6}\n',
        "b.c-00000.jsonl": '{"n":2}\n{"n":5}\n',
        "b.c-00001.jsonl": '{"n":7}\n',
    }


def test_csv_continues_with_the_columns_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    given = {"file": str(file), "format": "csv", "csv.null": "-"}
    kit = SinkKit("FileSink", given, tolerates=True)
    schema = struct_schema(("b", data.OPTIONAL_STRING), ("a", data.BOOLEAN))
    kit.put(ConnectRecord("t", {"b": None, "a": True}, schema))
    kit.restart()
    kit.put({"a": False}, {"a": 1, "z": 2}, "text", {"b": "x", "a": 1})
    assert file.read_text() == "b,a\n-,true\n-,false\nx,1\n"
    assert [str(error) for _, error in kit.reported] == [
        "the file has no column z; it has b, a",
        "a value must be a struct to be written as CSV, not str",
    ]
    strict = SinkKit("FileSink", given)
    with pytest.raises(DataError, match="no column z"):
        strict.put({"z": 1})


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    kit = SinkKit("FileSink", {"file": str(tmp_path / "no" / "out")})
    with pytest.raises(UserError, match=r"Cannot write .*out: no such file or directory\."):
        kit.put("x")


def test_json_lines_keep_what_json_has_no_type_for(tmp_path: Path) -> None:
    import datetime
    import decimal

    file = tmp_path / "out"
    kit = SinkKit("FileSink", {"file": str(file), "format": "json"})
    schema = struct_schema(("price", data.decimal_schema(2)), ("day", data.DATE_SCHEMA))
    day = datetime.date(1970, 1, 2)
    kit.put(ConnectRecord("t", {"price": decimal.Decimal("1.50"), "day": day}, schema), None)
    assert file.read_text() == '{"price":1.50,"day":1}\nnull\n'
    assert json.loads(file.read_text().splitlines()[0])["day"] == 1
