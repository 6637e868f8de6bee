"""The page of commands, from the `--help` text of each."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 78
"""Columns that a code block shows without scrolling on a page of 1280 pixels."""
HEAD = """\
# Commands

The `--help` of every command. Apache Kafka's tools have Kafka's names, and each is a command of
`ottla` as well. [Tools](../tools.md) has examples, and lists what differs from Kafka's.
"""


def page() -> str:
    lines = [HEAD]
    commands = dict(_commands())
    lines.append("\n| command | what it does |\n|---|---|")
    for name, command in commands.items():
        short = command.get_short_help_str(100)
        lines.append(f"| [`{name}`](#{name.replace(' ', '-')}) | {short} |")
    for name, command in commands.items():
        lines += [f"\n## {name}\n", "```text", _help(name, command), "```"]
    return "\n".join(lines) + "\n"


def _commands() -> Iterator[tuple[str, click.Command]]:
    from ottla.cli.main import ottla

    context = click.Context(ottla, info_name="ottla")
    tools = {
        name: found
        for tool, command in _scripts().items()
        for name, found in _with_actions(tool, command)
    }
    for name in ottla.list_commands(context):
        command = ottla.get_command(context, name)
        assert command is not None
        for whole, found in _with_actions(f"ottla {name}", command):
            if found not in tools.values():
                yield whole, found
    yield from tools.items()


def _with_actions(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command, info_name=name)
    for action in command.list_commands(context):
        found = command.get_command(context, action)
        assert found is not None
        yield from _with_actions(f"{name} {action}", found)


def _scripts() -> dict[str, click.Command]:
    """Return the tools that are installed under their own names."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    found = {}
    for name, place in sorted(scripts.items()):
        module = import_module(place.partition(":")[0])
        command = getattr(module, name.replace("-", "_"), None)
        if isinstance(command, click.Command) and name != "ottla":
            found[name] = command
    return found


def _help(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=name, max_content_width=WIDTH, terminal_width=WIDTH)
    return command.get_help(context)
