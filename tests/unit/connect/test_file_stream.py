"""Tests of the file source's lines and the file sink's batches, without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.connect.api import Offsets
from ottla.connect.connectors.file_stream import FileStreamSinkTask, FileStreamSourceTask
from ottla.connect.data import STRING, ConnectRecord


class Reading:
    """A source task and the offsets it returned last."""

    def __init__(self, path: Path, batch_size: int = 100, offsets: Offsets | None = None) -> None:
        self.path = path
        self.offsets = offsets or []
        self.task = FileStreamSourceTask(str(path), "t", batch_size)
        self.task.start(self.offsets)

    def lines(self) -> list[str]:
        polled = self.task.poll(0)
        self.offsets = polled.offsets or self.offsets
        return [each.value for each in polled.records]

    def all_lines(self) -> list[str]:
        found: list[str] = []
        # Switching to another file takes one poll that returns no lines.
        for _ in range(4):
            found += self.lines()
        return found

    def restarted(self) -> Reading:
        self.task.stop()
        return Reading(self.path, offsets=self.offsets)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "test.txt"


def append(path: Path, text: str) -> None:
    with open(path, "a") as out:
        out.write(text)


def test_a_line_is_taken_when_its_newline_is_there(file: Path) -> None:
    file.write_text("foo\nba")
    reading = Reading(file)
    assert reading.lines() == ["foo"]
    assert reading.lines() == []
    append(file, "r\n")
    assert reading.lines() == ["bar"]


def test_carriage_returns_do_not_count(file: Path) -> None:
    file.write_bytes(b"a\r\n\r\nb\n")
    assert Reading(file).lines() == ["a", "", "b"]


def test_a_file_that_is_not_there_is_waited_for(file: Path, caplog: Any) -> None:
    reading = Reading(file)
    assert reading.lines() == []
    assert "does not exist; waiting for it" in caplog.text
    file.write_text("now\n")
    assert reading.lines() == ["now"]


def test_no_more_lines_at_once_than_asked_for(file: Path) -> None:
    file.write_text("".join(f"{number}\n" for number in range(10)))
    reading = Reading(file, batch_size=4)
    assert [len(reading.lines()) for _ in range(4)] == [4, 4, 2, 0]


def test_a_restart_resumes_at_the_next_line(file: Path) -> None:
    file.write_text("a\nb\n")
    reading = Reading(file, batch_size=1)
    assert reading.lines() == ["a"]
    reading = reading.restarted()
    append(file, "c\n")
    assert reading.lines() == ["b", "c"]
    assert reading.restarted().lines() == []


@pytest.mark.parametrize("anew", ["x\n", "longer than what was there before\n"])
def test_a_file_that_is_cut_is_read_from_its_beginning(file: Path, anew: str, caplog: Any) -> None:
    file.write_text("foo\nbar\n")
    reading = Reading(file)
    assert reading.lines() == ["foo", "bar"]
    file.write_text(anew)
    assert reading.all_lines() == [anew.strip()]
    assert "was truncated" in caplog.text


@pytest.mark.parametrize("anew", ["x\n", "longer than what was there before\n"])
def test_a_file_that_was_cut_meanwhile_is_read_from_its_beginning(file: Path, anew: str) -> None:
    file.write_text("foo\nbar\n")
    reading = Reading(file)
    reading.lines()
    file.write_text(anew)
    assert reading.restarted().all_lines() == [anew.strip()]


def test_a_renamed_file_is_read_to_its_end_and_then_the_new_one(file: Path, caplog: Any) -> None:
    file.write_text("a\n")
    reading = Reading(file)
    assert reading.lines() == ["a"]
    old = file.rename(file.with_suffix(".1"))
    append(old, "b\n")
    file.write_text("c\n")
    assert reading.all_lines() == ["b", "c"]
    assert "replaced by another file" in caplog.text


def test_a_file_that_was_renamed_meanwhile_is_found_again(file: Path, caplog: Any) -> None:
    file.write_text("a\n")
    reading = Reading(file)
    reading.lines()
    reading.task.stop()
    append(file.rename(file.with_suffix(".1")), "b\n")
    file.write_text("a\nc\n")
    assert reading.restarted().all_lines() == ["b", "a", "c"]
    assert "was renamed" in caplog.text


def test_a_position_that_a_person_set_is_enough(file: Path) -> None:
    file.write_text("foo\nbar\n")
    offsets: Offsets = [({"filename": str(file)}, {"position": 4})]
    assert Reading(file, offsets=offsets).lines() == ["bar"]


def test_invalid_utf8_is_replaced_and_logged_once(file: Path, caplog: Any) -> None:
    file.write_bytes(b"\xff\nok\n\xfe\n")
    assert Reading(file).lines() == ["�", "ok", "�"]
    assert caplog.text.count("not UTF-8") == 1


def test_a_file_that_may_not_be_read_is_reported(file: Path) -> None:
    file.mkdir()
    with pytest.raises(UserError, match="Cannot read"):
        Reading(file).lines()


class Writing:
    def __init__(self, path: Path, directory: Path) -> None:
        self.task = FileStreamSinkTask(str(path))
        self.task.start(directory)

    def batch(self, number: int, *values: object, ends: bool = True) -> None:
        self.task.begin(number)
        self.task.put([ConnectRecord("t", value, STRING) for value in values])
        if ends:
            self.task.end()


def test_a_batch_that_comes_again_replaces_itself(file: Path, tmp_path: Path) -> None:
    first = Writing(file, tmp_path)
    first.batch(0, "a")
    first.batch(1, "b", "half", ends=False)
    Writing(file, tmp_path).batch(1, "b", "c")
    assert file.read_text() == "a\nb\nc\n"


def test_a_batch_that_was_done_may_come_again_too(file: Path, tmp_path: Path) -> None:
    Writing(file, tmp_path).batch(5, "a")
    Writing(file, tmp_path).batch(5, "a")
    assert file.read_text() == "a\n"


def test_what_was_in_the_file_stays(file: Path, tmp_path: Path) -> None:
    file.write_text("before\n")
    Writing(file, tmp_path).batch(0, "a", None)
    assert file.read_text() == "before\na\nnull\n"


def test_a_sink_whose_file_was_renamed_writes_a_new_one(file: Path, tmp_path: Path) -> None:
    writing = Writing(file, tmp_path)
    writing.batch(0, "a")
    old = file.rename(file.with_suffix(".1"))
    writing.batch(1, "b")
    assert (old.read_text(), file.read_text()) == ("a\n", "b\n")


def test_a_sink_without_write_permission_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Cannot write"):
        Writing(tmp_path / "no" / "folder", tmp_path)
    assert os.listdir(tmp_path) == []
