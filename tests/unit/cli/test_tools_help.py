"""Tests that every tool prints help with examples quickly, under its own name and as `ottla`."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.arch.test_imports import modules_after, roots

from ottla import __version__
from ottla.cli.main import COMMANDS, SECTIONS, ottla
from ottla.cli.tool import Command, Tool, ToolGroup

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
SCRIPTS = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
WITHOUT_JSON = (
    "ottla.cli.kafka_console_producer:kafka_console_producer",
    "ottla.cli.kafka_dump_log:kafka_dump_log",
)
OURS = [place for place in COMMANDS.values() if ":kafka_" in place]


def load(place: str) -> click.Command:
    module, _, attribute = place.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


@pytest.mark.parametrize("place", OURS)
def test_a_tool_is_also_a_program_of_its_own(place: str) -> None:
    module, _, attribute = place.partition(":")
    assert SCRIPTS[attribute.replace("_", "-")] == f"{module}:main"
    assert callable(importlib.import_module(module).main)


def test_every_tool_has_the_name_of_kafkas_script_too() -> None:
    for name, place in SCRIPTS.items():
        if name.startswith(("kafka-", "connect-")) and not name.endswith(".sh"):
            assert SCRIPTS[f"{name}.sh"] == place
        if name.endswith(".sh"):
            assert SCRIPTS[name.removesuffix(".sh")] == place


def all_below(
    words: list[str], command: click.Command
) -> Iterator[tuple[list[str], click.Command]]:
    """Yield a command and its subcommands, each with the words that invoke it."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from all_below([*words, name], below)


def test_every_command_of_ottla_has_a_version() -> None:
    found = list(all_below([], ottla))
    assert len(found) > len(COMMANDS)
    for words, command in found:
        assert isinstance(command, Command), words
        result = CliRunner().invoke(ottla, [*words, "--version"])
        assert (result.exit_code, result.stdout.split()[:2]) == (0, ["ottla", __version__]), words


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_every_script_has_a_version(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _, function = SCRIPTS[name].partition(":")
    monkeypatch.setattr(sys, "argv", [name, "--version"])
    with pytest.raises(SystemExit) as ended:
        getattr(importlib.import_module(module), function)()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"ottla {__version__} (Python ")


@pytest.mark.parametrize("place", OURS)
def test_help_has_examples(place: str) -> None:
    command = load(place)
    actions = command.commands.values() if isinstance(command, ToolGroup) else [command]
    for each in actions:
        if not isinstance(each, Tool):
            continue
        result = CliRunner().invoke(each, ["--help"])
        assert result.exit_code == 0
        assert "Examples:" in result.stdout
        assert place in WITHOUT_JSON or re.search(r"--json\b", result.stdout)


def test_help_of_everything_names_every_command() -> None:
    result = CliRunner().invoke(ottla, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in result.stdout


def test_help_of_everything_groups_the_commands_under_headings() -> None:
    shown: dict[str, list[str]] = {}
    heading = ""
    for line in CliRunner().invoke(ottla, ["--help"]).stdout.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            heading = line.removesuffix(":")
        elif found := re.match(r"  (\S+)  +\S", line):
            shown.setdefault(heading, []).append(found[1])
    shown.pop("Options")
    assert shown == {name: list(commands) for name, commands in SECTIONS.items()}
    assert list(SECTIONS) == [
        "Start and operate",
        "Topics and records",
        "Groups and transactions",
        "Pipelines",
        "Development",
    ]


@pytest.mark.parametrize("columns", [80, 100])
def test_summaries_of_commands_are_not_cut_off(columns: int) -> None:
    for words, command in all_below(["ottla"], ottla):
        if not isinstance(command, click.Group):
            continue
        context = click.Context(command, info_name=words[-1])
        formatter = click.HelpFormatter(max_width=100)
        formatter.width = columns - 2  # click leaves two columns of a terminal empty
        command.format_commands(context, formatter)
        assert "..." not in formatter.getvalue(), words


SCRIPT_ONLY = [
    ([name], load(f"ottla.cli.{name.replace('-', '_')}:{name.replace('-', '_')}"))
    for name in ("kafka-server-start", "kafka-server-stop")
]


def test_help_of_every_option_stands_alone() -> None:
    for words, command in [*all_below(["ottla"], ottla), *SCRIPT_ONLY]:
        for option in command.params:
            if not isinstance(option, click.Option) or option.hidden:
                continue
            text = re.sub(r"  \[default: [^]]+\]$", "", option.help or "")
            assert re.fullmatch(r"[A-Z].*[.…]", text), (words, option.opts, text)


def test_help_of_every_tool_loads_click_and_the_standard_library_only() -> None:
    modules = {place.partition(":")[0] for place in COMMANDS.values()}
    loaded = modules_after(f"import {', '.join(sorted(modules))}")
    assert roots(loaded) - set(sys.stdlib_module_names) - {"__main__"} <= {"click", "ottla"}
    assert "asyncio" not in loaded
    assert not any(module.startswith("ottla.client") for module in loaded)
