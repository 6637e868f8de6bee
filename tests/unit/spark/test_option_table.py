"""Tests that every option has a test, listed in tests/spark/README.md."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.spark.options import SINK_OPTIONS, SOURCE_OPTIONS

TESTS = Path(__file__).parents[2]


def test_every_option_is_in_the_table_with_tests_that_exist() -> None:
    text = (TESTS / "spark" / "README.md").read_text()
    rows = dict(re.findall(r"^\| (\S+) \| (.+) \|$", text, re.MULTILINE))
    assert {*SOURCE_OPTIONS, *SINK_OPTIONS} <= set(rows)
    for names in rows.values():
        for name in re.findall(r"[\w/]+::\w+", names):
            file, _, function = name.partition("::")
            folder = TESTS if file.startswith("unit/") else TESTS / "spark"
            assert f"def {function}(" in (folder / f"{file}.py").read_text(), name
