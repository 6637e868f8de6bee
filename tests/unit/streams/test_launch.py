"""Tests of the parts of `ottla run app.py` that do not need Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.base.errors import UserError
from ottla.cli.run import run

PROGRAM = """
import sys
import ottla.streams as st
app = st.App("shop", *sys.argv[1:])
app.stream("orders").to("copy")
"""


@pytest.fixture(autouse=True)
def kept_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore `__main__`, `sys.argv` and `sys.path`, which a launched program replaces."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))


def ottla_run(*arguments: object) -> Result:
    return CliRunner().invoke(run, [str(each) for each in arguments], catch_exceptions=True)


def program(home: Path, text: str) -> Path:
    path = home / "app.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("end", ["", "if __name__ == '__main__':\n    app.run()\n"])
def test_a_program_is_explained_whether_it_runs_its_application_or_not(
    tmp_path: Path, end: str
) -> None:
    result = ottla_run(program(tmp_path, PROGRAM + end), "--explain")
    assert result.exit_code == 0, result.output
    assert "2  to  topic copy" in result.output


def test_a_picture_is_written(tmp_path: Path) -> None:
    picture = tmp_path / "topology.svg"
    assert ottla_run(program(tmp_path, PROGRAM), "--svg", picture).exit_code == 0
    assert picture.read_text().startswith("<svg")
    result = ottla_run(program(tmp_path, PROGRAM), "--svg", tmp_path / "no" / "where.svg")
    assert isinstance(result.exception, UserError)
    assert "no such file" in str(result.exception)


def test_the_commands_word_counts_over_the_programs(tmp_path: Path) -> None:
    reported = tmp_path / "reported"
    end = f"""
def run(app, stores=None, http=None):
    open({str(reported)!r}, "w").write(" ".join((
        app.bootstrap, app.master, app.state_dir, app.spark_settings["spark.x"], str(http))))
import ottla.streams.run
ottla.streams.run.run = run
app.run()
"""
    result = subprocess.run(
        [
            sys.executable, "-m", "ottla", "run", str(program(tmp_path, PROGRAM + end)), "here:1",
            "--bootstrap-server", "there:2", "--master", "local[1]", "--state-dir", "/s",
            "--conf", "spark.x=y", "--http", "7070",
        ],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert reported.read_text() == "there:2 local[1] /s y 7070"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "it creates none"),
        (PROGRAM + "other = st.App('other')", "it creates 2 and runs none of them"),
        ("def", "is not a valid Python program"),
    ],
)
def test_a_program_without_one_application_is_refused(
    tmp_path: Path, text: str, sentence: str
) -> None:
    result = ottla_run(program(tmp_path, text), "--explain")
    assert isinstance(result.exception, UserError)
    assert sentence in str(result.exception)


def test_a_program_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    result = ottla_run(tmp_path / "none.py")
    assert isinstance(result.exception, UserError)
    assert "no such file or directory" in str(result.exception)


def test_a_setting_without_a_value_is_refused(tmp_path: Path) -> None:
    assert ottla_run(program(tmp_path, PROGRAM), "--conf", "spark.x").exit_code == 1
