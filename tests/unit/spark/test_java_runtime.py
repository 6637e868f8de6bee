"""Tests of Java runtimes without a module that Spark's launcher requests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ottla.spark.java_runtime import MODULE, home_for_spark

WITHOUT = 'JAVA_VERSION="25.0.2"\nMODULES="java.base java.sql"\n'


def home(at: Path, release: str | None) -> Path:
    (at / "bin").mkdir(parents=True)
    (at / "lib").mkdir()
    java = at / "bin" / "java"
    java.write_text('#!/bin/sh\nfor each do echo "$each"; done\n')
    java.chmod(0o755)
    if release is not None:
        (at / "release").write_text(release)
    return at


@pytest.mark.parametrize(
    "release", [None, 'JAVA_VERSION="17"\n', f'MODULES="java.base {MODULE}"\n'], ids=str
)
def test_a_runtime_that_has_it_or_does_not_report_it_is_unchanged(
    tmp_path: Path, release: str | None
) -> None:
    there = home(tmp_path / "java", release)
    assert home_for_spark(there) == there


def test_one_without_it_is_not_asked_for_it(tmp_path: Path) -> None:
    made = home_for_spark(home(tmp_path / "a runtime", WITHOUT))
    given = ["-cp", "a b", f"--add-modules={MODULE}", "", "$HOME *", "--add-modules=java.sql"]
    heard = subprocess.check_output([made / "bin" / "java", *given], text=True)
    assert heard.splitlines() == ["-cp", "a b", "", "$HOME *", "--add-modules=java.sql"]
    assert home_for_spark(made) == made
