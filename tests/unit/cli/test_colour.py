"""Tests that colours appear only on terminals, unless environment variables override this."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from ottla.base.errors import UserError
from ottla.cli import colour
from ottla.cli.failure import run_command
from ottla.cli.log_output import LogFormatter
from ottla.cli.output import Output, output_option, table
from ottla.cli.tool import Tool

ESCAPE = "\x1b["
SCRIPT = """
from ottla.base.errors import UserError
from ottla.cli.failure import run_command
from ottla.cli.output import Output
def fail():
    Output().warning("careful")
    raise UserError("No file.")
run_command(fail)
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "on_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_the_environment_decides_before_the_stream(
    variables: dict[str, str], on_terminal: bool, in_pipe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert colour.is_on(FakeTerminal()) == on_terminal
    assert colour.is_on(io.StringIO()) == in_pipe


def test_headings_and_states_of_tables_have_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, rows = ("BROKER", "STATE", "RACK"), [(1, "up", "up"), (2, "down", None)]
    plain = table(columns, rows)
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = table(columns, rows)
    assert [click.unstyle(line) for line in coloured] == plain
    assert coloured[0] == click.style(plain[0], bold=True)
    assert coloured[1] == f"1      {click.style('up', fg='green')}    up"
    assert coloured[2] == f"2      {click.style('down', fg='red')}  -"


@click.command(cls=Tool)
@output_option
def show(output: Output) -> None:
    output.warning("careful")
    output.show({"STATE": "up"}, lambda: table(("STATE",), [("up",)]))


def test_pipes_and_json_are_plain_and_forced_colours_reach_pipes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    piped = CliRunner().invoke(show, [])
    assert ESCAPE not in piped.output
    monkeypatch.setenv("FORCE_COLOR", "1")
    forced = CliRunner().invoke(show, [])
    assert click.style("up", fg="green") in forced.stdout
    assert click.style("careful", fg="yellow") in forced.stderr
    as_json = CliRunner().invoke(show, ["--json"])
    assert json.loads(as_json.stdout) == {"STATE": "up"}
    assert ESCAPE not in as_json.stdout


def test_errors_are_red(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    def fail() -> None:
        raise UserError("No file.")

    with pytest.raises(SystemExit):
        run_command(fail)
    assert capsys.readouterr().err == f"{click.style('No file.', fg='red')}\n"
    wrong = CliRunner().invoke(show, ["--jsn"])
    assert f"{ESCAPE}31mError: No such option '--jsn'. Did you mean --json?" in wrong.stderr


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_a_terminal_shows_colours_unless_disabled(variables: dict[str, str]) -> None:
    own, others = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-c", SCRIPT]
    assert subprocess.run(command, stderr=others, env=environment, check=False).returncode == 1
    os.close(others)
    shown = os.read(own, 65536).decode()
    os.close(own)
    is_coloured = not variables
    assert (click.style("careful", fg="yellow") in shown) == is_coloured
    assert (click.style("No file.", fg="red") in shown) == is_coloured


def test_levels_in_logs_have_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    record = logging.makeLogRecord(
        {"name": "a", "levelno": logging.WARNING, "levelname": "WARNING", "msg": "a WARNING"}
    )
    assert LogFormatter().format(record).endswith(" WARNING a WARNING (a)")
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = LogFormatter().format(record)
    assert coloured.endswith(f" {click.style('WARNING', fg='yellow')} a WARNING (a)")
