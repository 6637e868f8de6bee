"""Tests that the demo detects lost, duplicated and miscounted records."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from ottla.cli.demo.pipeline import ResultFile
from ottla.cli.demo.verification import (
    ReadRecords,
    WordCounts,
    WrittenLines,
    checks,
    has_arrived,
    numbered_lines,
)


def change(word: str, seen: int, window: str | None = None) -> str:
    reported = {"word": word, "seen": seen}
    return json.dumps(reported if window is None else {**reported, "from": window})


@pytest.fixture
def written() -> WrittenLines:
    made = WrittenLines()
    for line in ("tea or coffee", "Tea  please"):
        made.add(line)
    return made


WHOLE = {"tea": 2, "or": 1, "coffee": 1, "please": 1}


def counted(words: dict[str, int]) -> WordCounts:
    return WordCounts.of(change(word, seen) for word, seen in words.items())


def test_no_two_lines_are_the_same() -> None:
    lines = list(itertools.islice(numbered_lines(), 1_000))
    assert len(set(lines)) == 1_000


def test_a_pipeline_that_gave_back_everything_is_right(written: WrittenLines) -> None:
    read = ReadRecords(["tea or coffee", "Tea  please"], counted(WHOLE), counted(WHOLE))
    assert has_arrived(written, read, counted(WHOLE), counted(WHOLE))
    assert all(each.is_right for each in checks(written, read, counted(WHOLE), counted(WHOLE)))


@pytest.mark.parametrize(
    ("read", "wrong"),
    [
        (
            ReadRecords(["tea or coffee"], counted(WHOLE), counted(WHOLE)),
            "lines of lines.txt in topic lines",
        ),
        (
            ReadRecords(
                ["tea or coffee", "Tea  please", "Tea  please"], counted(WHOLE), counted(WHOLE)
            ),
            "other records in topic lines",
        ),
        (
            ReadRecords(
                ["tea or coffee", "Tea  please"], counted({**WHOLE, "tea": 3}), counted(WHOLE)
            ),
            "words counted in topic word-counts",
        ),
        (
            ReadRecords(
                ["tea or coffee", "Tea  please"],
                counted(WHOLE),
                counted({**WHOLE, "tea": 1, "or": 2}),
            ),
            "words counted in topic word-windows",
        ),
    ],
)
def test_what_is_lost_or_there_twice_is_reported(
    written: WrittenLines, read: ReadRecords, wrong: str
) -> None:
    found = checks(written, read, counted(WHOLE), counted(WHOLE))
    (reported,) = [each.what for each in found if not each.is_right]
    assert reported.startswith(wrong)


def test_a_repeated_change_is_counted_as_such() -> None:
    reported = [change("tea", 1), change("tea", 2), change("tea", 2), change("coffee", 1)]
    found = WordCounts.of(reported)
    assert (found.changes, found.repeated, found.words()) == (4, 1, {"tea": 2, "coffee": 1})


def test_words_of_all_windows_add_up() -> None:
    reported = [change("tea", 1, "12:00"), change("tea", 2, "12:00"), change("tea", 5, "12:10")]
    found = WordCounts.of(reported)
    assert (found.windows, found.repeated, found.words()) == (2, 0, {"tea": 7})


def test_a_result_file_is_read_on_by_whole_lines_and_anew_when_it_was_cut(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "counts.txt")
    file.read_on()
    assert file.counted.changes == 0, "there is no file yet"
    first, second = change("tea", 1), change("tea", 2)
    file.path.write_text(f"{first}\n{second[:5]}")
    file.read_on()
    assert file.counted.words() == {"tea": 1}
    file.path.write_text(f"{first}\n{second}\n")
    file.read_on()
    assert (file.counted.words(), file.counted.changes) == ({"tea": 2}, 2)
    file.path.write_text(f"{first}\n")
    file.read_on()
    assert (file.counted.words(), file.counted.changes) == ({"tea": 1}, 1)
