"""Tests of the state store file, which holds a table and the positions it was built from."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ottla.streams.store_file import NO_WINDOW, READ_ROWS, StoreChange, StoreFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app" / "totals.store"


def put(key: bytes, value: bytes | None, window: tuple[int, int] = NO_WINDOW) -> StoreChange:
    return StoreChange(key, window, value, 1)


def test_the_last_change_of_a_key_counts_and_null_deletes(path: Path) -> None:
    file = StoreFile(path)
    file.apply([put(b"a", b"1"), put(b"b", b"1"), put(b"a", b"2")], {0: 3})
    file.apply([put(b"b", None)], {0: 4, 1: 9})
    assert [(row.key, row.value) for row in file.range(None, None)] == [(b"a", b"2")]
    assert file.latest(b"b") is None
    assert file.positions() == {0: 4, 1: 9}


def test_it_is_there_when_it_is_opened_again(path: Path) -> None:
    StoreFile(path).apply([put(b"a", b"1")], {0: 1})
    file = StoreFile(path)
    assert file.count() == 1
    assert file.positions() == {0: 1}


def test_changes_that_fail_leave_nothing(path: Path) -> None:
    file = StoreFile(path)
    with pytest.raises(sqlite3.Error):
        file.apply([put(b"a", b"1"), StoreChange(None, NO_WINDOW, b"1", 1)], {0: 1})  # type: ignore[arg-type]
    assert (file.count(), file.positions()) == (0, {})


def test_a_range_is_in_the_order_of_bytes_with_both_ends(path: Path) -> None:
    file = StoreFile(path)
    file.apply([put(key, b"") for key in (b"\xff", b"b", b"a", b"c", b"aa")], {})
    assert [row.key for row in file.range(b"aa", b"c")] == [b"aa", b"b", b"c"]
    assert [row.key for row in file.range(None, None, is_reverse=True)] == [
        b"\xff", b"c", b"b", b"aa", b"a",
    ]  # fmt: skip


@pytest.mark.parametrize("is_reverse", [False, True])
def test_a_long_range_is_read_piece_by_piece(path: Path, is_reverse: bool) -> None:
    file = StoreFile(path)
    keys = [b"%06d" % number for number in range(2 * READ_ROWS + 1)]
    file.apply([put(key, b"") for key in keys], {})
    found = [row.key for row in file.range(None, None, is_reverse=is_reverse)]
    assert found == (keys[::-1] if is_reverse else keys)


def test_windows_of_a_key_are_found_by_their_start(path: Path) -> None:
    file = StoreFile(path)
    file.apply([put(b"a", b"%d" % start, (start, start + 10)) for start in (20, 0, 10)], {})
    assert [row.value for row in file.of_key(b"a", 10, 20)] == [b"10", b"20"]
    latest = file.latest(b"a")
    assert latest is not None
    assert latest.window == (20, 30)


def test_old_windows_are_forgotten_and_plain_keys_are_not(path: Path) -> None:
    file = StoreFile(path)
    file.apply([put(b"a", b"", (0, 10)), put(b"a", b"", (10, 20)), put(b"b", b"")], {})
    file.delete_windows_before(20)
    assert [(row.key, row.window) for row in file.range(None, None)] == [
        (b"a", (10, 20)),
        (b"b", (0, 0)),
    ]


@pytest.mark.parametrize("content", [b"this is no database, and long enough to be one" * 100, b""])
def test_a_file_that_is_no_store_is_made_again(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    file = StoreFile(path)
    file.apply([put(b"a", b"1")], {0: 1})
    assert file.count() == 1


def test_a_file_of_another_format_is_made_again(path: Path) -> None:
    file = StoreFile(path)
    file.apply([put(b"a", b"1")], {0: 1})
    file.close()
    other = sqlite3.connect(path)
    other.execute("update facts set text = '0' where name = 'format'")
    other.commit()
    other.close()
    assert StoreFile(path).count() == 0
