"""Every tool: quick help with examples, under its own name and under `ottla`."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.arch.test_imports import modules_after, roots

from ottla.cli.main import COMMANDS, ottla
from ottla.cli.tool import Tool, ToolGroup

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
OURS = [place for place in COMMANDS.values() if ":kafka_" in place]


def load(place: str) -> click.Command:
    module, _, attribute = place.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


@pytest.mark.parametrize("place", OURS)
def test_a_tool_is_also_a_program_of_its_own(place: str) -> None:
    scripts = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
    module, _, attribute = place.partition(":")
    assert scripts[attribute.replace("_", "-")] == f"{module}:main"
    assert callable(importlib.import_module(module).main)


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
        assert "kafka_console_producer" in place or re.search(r"--json\b", result.stdout)


def test_help_of_everything_names_every_command() -> None:
    result = CliRunner().invoke(ottla, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in result.stdout


def test_help_of_every_tool_loads_click_and_the_standard_library_only() -> None:
    modules = {place.partition(":")[0] for place in COMMANDS.values()}
    loaded = modules_after(f"import {', '.join(sorted(modules))}")
    assert roots(loaded) - set(sys.stdlib_module_names) - {"__main__"} <= {"click", "ottla"}
    assert "asyncio" not in loaded
    assert not any(module.startswith("ottla.client") for module in loaded)
