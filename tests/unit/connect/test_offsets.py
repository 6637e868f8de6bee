"""Tests of the standalone worker's offset file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.base.errors import UserError
from ottla.connect.offsets import FileOffsetStorage, merged
from ottla.connect.retrying import restart_delay_ms
from ottla.connect.spark_errors import reason_of

AT_FOUR = [({"filename": "f"}, {"position": 4})]


def opened(path: Path) -> FileOffsetStorage:
    store = FileOffsetStorage(str(path))
    store.open()
    return store


def test_offsets_and_generations_outlive_the_worker(tmp_path: Path) -> None:
    store = opened(tmp_path / "o")
    directory = store.directory("c")
    store.update("c", store.entry("c").generation, AT_FOUR)
    store.close()
    again = opened(tmp_path / "o")
    assert again.entry("c").offsets == AT_FOUR
    assert again.directory("c") == directory


def test_without_the_file_a_connector_starts_over(tmp_path: Path) -> None:
    store = opened(tmp_path / "o")
    directory = store.directory("c")
    store.close()
    (tmp_path / "o").unlink()
    assert opened(tmp_path / "o").directory("c") != directory


def test_new_offsets_are_a_new_generation(tmp_path: Path) -> None:
    store = opened(tmp_path / "o")
    old = store.directory("c")
    old.mkdir(parents=True)
    store.replace("c", AT_FOUR)
    assert store.directory("c") != old
    assert not old.exists()
    assert json.loads((tmp_path / "o").read_text())["connectors"]["c"]["offsets"] == [
        {"partition": {"filename": "f"}, "offset": {"position": 4}}
    ]


def test_one_worker_at_a_time_has_the_file(tmp_path: Path) -> None:
    store = opened(tmp_path / "o")
    with pytest.raises(UserError, match="Another worker"):
        opened(tmp_path / "o")
    store.close()
    opened(tmp_path / "o")


@pytest.mark.parametrize("text", ["\xac\xed\x00\x05", "[]", '{"version": 9}', '{"version": 1}'])
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "o").write_text(text)
    with pytest.raises(UserError, match="is not an offsets file of Ottla"):
        opened(tmp_path / "o")
    assert (tmp_path / "o").read_text() == text


@pytest.mark.parametrize("name", ["a/b", "..", "ä", "a.b"])
def test_any_name_is_a_directory_of_its_own(tmp_path: Path, name: str) -> None:
    directory = opened(tmp_path / "o").directory(name)
    assert directory.parent.parent == tmp_path / "o.tasks"
    assert directory.parent.name not in ("", ".", "..")


def test_merged_offsets_have_one_for_each_partition() -> None:
    new = [({"filename": "g"}, {"position": 1}), ({"filename": "f"}, {"position": 9})]
    assert merged(AT_FOUR, new) == [new[1], new[0]]


def test_the_reason_of_a_failed_query_is_what_python_raised_last() -> None:
    error_text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n    raise UserError(…)\n'
        "ottla.base.errors.UserError: Cannot read f: is a directory.\n SQLSTATE: 38000\n"
        "=== Streaming Query ===\nmore"
    )
    assert reason_of(error_text) == "Cannot read f: is a directory."
    assert reason_of("[STREAM_FAILED] Query ended: disk full SQLSTATE: XXKST\n\tat x.Y") == (
        "[STREAM_FAILED] Query ended: disk full"
    )
    assert reason_of("Traceback (most recent call last):\nValueError: no") == "ValueError: no"


def test_pauses_double_up_to_the_longest() -> None:
    assert [restart_delay_ms(n, 1000, 5000) for n in (1, 2, 3, 4, 99)] == [
        1000, 2000, 4000, 5000, 5000,
    ]  # fmt: skip
