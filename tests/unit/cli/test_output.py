"""Tests of output as text and as JSON, and of error messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from ottla.base.errors import ErrorCode, KafkaError, UserError
from ottla.base.types import TopicPartition
from ottla.cli.failure import run_command, sentence
from ottla.cli.output import Output, output_option, plain, table
from ottla.cli.tool import Tool, ToolGroup
from ottla.client.errors import UnknownTopic


class Colour(IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: bytes


@dataclass(frozen=True)
class Thing:
    name: str
    points: tuple[Point, ...]
    colour: Colour


def test_columns_are_aligned_and_missing_values_are_dashes() -> None:
    assert table(("A", "LONGER"), [(1, None), ("wide cell", "x")]) == [
        "A         LONGER",
        "1         -",
        "wide cell x",
    ]


def test_a_table_without_rows_has_its_names() -> None:
    assert table(("A", "B"), []) == ["A B"]


def test_values_are_plain_in_json() -> None:
    thing = Thing("a", (Point(1, b"text"), Point(2, b"\xff\xfe")), Colour.RED)
    assert plain({TopicPartition("t", 3): thing}) == {
        "t-3": {
            "name": "a",
            "points": [{"x": 1, "y": "text"}, {"x": 2, "y": "//4="}],
            "colour": "RED",
        }
    }
    assert plain({3, 1, 2}) == [1, 2, 3]


@click.command(cls=Tool, examples="tool --json")
@click.option("--count", type=int)
@output_option
def tool(output: Output, count: int | None) -> None:
    """Show something."""
    output.note("a note")
    output.show({"count": count}, lambda: [f"{count} things"])


def test_json_or_text_never_both_and_notes_apart() -> None:
    text = CliRunner().invoke(tool, ["--count", "2"])
    assert (text.stdout, text.stderr) == ("2 things\n", "a note\n")
    machine = CliRunner().invoke(tool, ["--count", "2", "--json"])
    assert json.loads(machine.stdout) == {"count": 2}
    assert machine.stderr == "a note\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cuont", "1"], "Did you mean --count?"),
        (["--count", "x"], "'x' is not a valid integer"),
        (["more"], "unexpected extra argument"),
    ],
)
def test_wrong_arguments_end_a_tool_with_exit_code_1(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(tool, arguments)
    assert result.exit_code == 1
    assert message in result.stderr


def test_help_ends_with_examples() -> None:
    result = CliRunner().invoke(tool, ["--help"])
    assert result.exit_code == 0
    assert result.stdout.endswith("Examples:\n  tool --json\n")


def test_an_unknown_command_suggests_the_nearest() -> None:
    group = ToolGroup("all", commands={"tool": tool})
    result = CliRunner().invoke(group, ["tol"])
    assert result.exit_code == 2
    assert "Did you mean" in result.stderr
    assert "tool" in result.stderr.split("Did you mean")[1]


def ended_by(error: BaseException | None, value: object = None) -> int:
    def command() -> object:
        if error is not None:
            raise error
        return value

    with pytest.raises(SystemExit) as ended:
        run_command(command)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_failures_are_one_sentence_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_by(UserError("No file.")) == 1
    assert ended_by(KafkaError(ErrorCode.NOT_CONTROLLER, "not the controller")) == 1
    assert ended_by(KeyboardInterrupt()) == 130
    assert ended_by(None, 3) == 3
    assert ended_by(None) == 0
    captured = capsys.readouterr()
    assert captured.err == "No file.\nNot the controller.\n"
    assert captured.out == ""


def test_names_keep_their_small_letters() -> None:
    assert sentence(UnknownTopic("orders: no such topic", topic="orders")) == (
        "orders: no such topic."
    )
    assert sentence(UserError("broker.id cannot be changed")) == "broker.id cannot be changed."
    assert sentence(ValueError()) == "ValueError."
