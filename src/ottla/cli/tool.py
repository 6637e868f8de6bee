"""What Kafka's tools have in common as commands, and `ottla` as the group of all of them.

A tool is one click command in a module `kafka_<tool>`, which runs both by itself
(`kafka-topics …`) and under `ottla` (`ottla topics …`). Modules import what they run only when they
run, so that `--help` is quick."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from ottla.cli.failure import run_command

F = TypeVar("F", bound=Callable[..., Any])
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class WrongArguments(click.UsageError):
    """As Kafka's tools do, one whose arguments are wrong ends with exit code 1."""

    exit_code = 1


class Tool(click.Command):
    def __init__(self, *arguments: Any, examples: str = "", **options: Any) -> None:
        """`examples`: command lines, one to a line, as they are typed."""
        options.setdefault("context_settings", HELP)
        super().__init__(*arguments, **options)
        self.examples = examples

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **options)
        except click.UsageError as error:
            raise WrongArguments(error.format_message(), error.ctx) from None

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except click.UsageError as error:
            raise WrongArguments(error.format_message(), error.ctx or context) from None

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")
        super().format_epilog(context, formatter)


class ToolGroup(click.Group):
    """A tool with actions (`kafka-transactions list`), or `ottla` itself."""

    def __init__(
        self, *arguments: Any, modules: dict[str, str] | None = None, **options: Any
    ) -> None:
        """`modules`: name of a command -> where it is, `module:attribute`, imported when asked."""
        options.setdefault("context_settings", HELP)
        super().__init__(*arguments, **options)
        self._modules = modules or {}

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*super().list_commands(context), *self._modules})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        place = self._modules.get(name)
        if place is None:
            return super().get_command(context, name)
        module, _, attribute = place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, arguments)
        except click.UsageError as error:
            import difflib

            names = self.list_commands(context)
            nearest = difflib.get_close_matches(arguments[0], names, 1) if arguments else []
            message = error.format_message()
            if nearest and "mean" not in message:
                message += f" Did you mean {nearest[0]}?"
            raise click.UsageError(message, error.ctx) from None


def action_option(name: str, text: str) -> Callable[[F], F]:
    """One of a tool's actions (`--list`); the command gets the names of all that were given."""
    return click.option(f"--{name}", "actions", flag_value=name, multiple=True, help=text)


def run_tool(name: str, command: click.Command) -> NoReturn:
    """The whole of a tool's `main`."""
    run_command(lambda: command.main(prog_name=name, standalone_mode=False))
