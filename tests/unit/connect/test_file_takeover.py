"""Tests of a file sink that another worker takes over while the first is merely suspended."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.errors import UserError
from ottla.connect.connectors.file_sink import FileSink, FileSinkTask
from ottla.connect.connectors.file_stream import FileStreamSinkTask
from ottla.connect.data import STRING, ConnectRecord


def started(
    file: Path, folder: Path, epoch: int, *, is_takeover: bool = False
) -> FileStreamSinkTask:
    task = FileStreamSinkTask(str(file))
    task.epoch, task.is_takeover = epoch, is_takeover
    task.start(folder)
    return task


def lines(*values: str) -> list[ConnectRecord]:
    return [ConnectRecord("t", value, STRING) for value in values]


def write(task: FileStreamSinkTask, batch: int, *values: str) -> None:
    task.begin(batch)
    task.put(lines(*values))
    task.end()


def test_what_a_sleeper_writes_after_the_takeover_is_not_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    first = started(file, tmp_path, 1)
    write(first, 0, "a")
    first.begin(1)
    first.put(lines("b"))
    second = started(file, tmp_path, 2, is_takeover=True)
    write(second, 1, "b", "c")
    first.put(lines("c"))
    first.end()
    write(second, 2, "d")
    assert file.read_text() == "a\nb\nc\nd\n"


def test_a_sleeper_between_two_batches_learns_that_it_is_too_late(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    first = started(file, tmp_path, 1)
    write(first, 0, "a")
    second = started(file, tmp_path, 2, is_takeover=True)
    with pytest.raises(UserError, match="Another worker has taken over"):
        first.begin(1)
    write(second, 1, "b")
    assert file.read_text() == "a\nb\n"


def test_the_first_batch_may_be_taken_over_before_there_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    second = started(file, tmp_path, 2, is_takeover=True)
    write(second, 0, "a")
    assert file.read_text() == "a\n"


def test_files_of_a_folder_are_taken_over_alike(tmp_path: Path) -> None:
    settings = FileSink.definition.settings({"directory": str(tmp_path / "out"), "format": "lines"})

    def sink(epoch: int, *, is_takeover: bool = False) -> FileSinkTask:
        task = FileSinkTask(settings)
        task.epoch, task.is_takeover = epoch, is_takeover
        task.start(tmp_path)
        return task

    first = sink(1)
    first.begin(0)
    first.put(lines("a"))
    second = sink(2, is_takeover=True)
    second.begin(0)
    second.put(lines("a", "b"))
    second.end()
    first.put(lines("b"))
    first.end()
    first.begin(1)
    with pytest.raises(UserError, match="Another worker has taken over"):
        first.put(lines("c"))
    (file,) = (tmp_path / "out").iterdir()
    assert file.read_text() == "a\nb\n"
