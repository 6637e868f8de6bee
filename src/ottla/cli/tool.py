"""Base classes of all commands: `Tool` for one command, `ToolGroup` for a group such as `ottla`.

Each of Kafka's tools is one click command in a module `kafka_<tool>`. It runs as a program of its
own (`kafka-topics …`) and as a command of `ottla` (`ottla topics …`). The modules import their
implementation inside the command function, which keeps `--help` fast."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, NoReturn, TypeVar

import click

from ottla import __version__
from ottla.cli import colour
from ottla.cli.failure import run_command
from ottla.cli.suggestions import suggestion

F = TypeVar("F", bound=Callable[..., Any])
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
COMPLETE_VARIABLE = "_OTTLA_COMPLETE"
"""Environment variable that a shell sets to request completions from any of the programs."""
FILE_METAVARS = (
    *("FILE", "FILE1,FILE2,…", "DIR", "APP.PY"),
    *("server.properties", "worker.properties", "[connector.properties …]"),
)
"""Metavars that mark a parameter as a file name for shell completion."""
COMMANDS_HEADING = "Commands"
COMMANDS_INDENT = 6
"""Columns that click keeps free around the names and summaries of commands."""
_HELP_REQUESTS: tuple[type[click.UsageError], ...] = tuple(
    found for found in [getattr(click.exceptions, "NoArgsIsHelpError", None)] if found
)
"""The error that click 8.2 and later raise to print the help of a group without a subcommand."""


class WrongArguments(click.UsageError):
    """Usage error of a tool. The exit code is 1, as in Kafka's tools; click's would be 2."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the usage line and the message as click does, with the message in red."""
        if self.ctx is not None:
            click.echo(self.ctx.get_usage(), file, err=True)
            names = self.ctx.help_option_names
            if names:
                click.echo(f"Try '{self.ctx.command_path} {names[-1]}' for help.\n", file, err=True)
        message = click.style(f"Error: {self.format_message()}", fg="red")
        click.echo(message, file, err=True, color=colour.setting())


class WrongCommand(WrongArguments):
    """Usage error in the options or the subcommand of a group. The exit code is click's, 2."""

    exit_code = 2


class Command(click.Command):
    """Base class of all commands.

    - adds `--version`
    - suggests the nearest name for a mistyped option or value
    - applies the colour rules of the module `colour`
    - completes file names for parameters with one of FILE_METAVARS
    """

    wrong_arguments: type[WrongArguments] = WrongArguments

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("context_settings", HELP)
        super().__init__(*arguments, **options)
        self.params.append(_version_option())
        for parameter in self.params:
            if parameter.type is click.STRING and parameter.metavar in FILE_METAVARS:
                parameter.type = click.Path()

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        arguments = list(args)  # click consumes `args`
        extra.setdefault("color", colour.setting())
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise self._wrong_arguments(error, arguments) from None

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except click.UsageError as error:
            raise self._wrong_arguments(error, [], context) from None

    def _wrong_arguments(
        self, error: click.UsageError, arguments: list[str], context: click.Context | None = None
    ) -> click.UsageError:
        if isinstance(error, (WrongArguments, *_HELP_REQUESTS)):
            return error
        message = self._error_message(error, arguments)
        return self.wrong_arguments(message, error.ctx or context)

    def _error_message(self, error: click.UsageError, arguments: list[str]) -> str:
        """Return the error's message, with a suggestion if an option or value is mistyped."""
        if error.ctx is None:
            return error.format_message()
        if isinstance(error, click.NoSuchOption):
            word = _whole_option(error.option_name, arguments)
            return f"No such option '{word}'." + suggestion(word, self._option_names(error.ctx))
        message = error.format_message()
        parameter = error.param if isinstance(error, click.BadParameter) else None
        if parameter is None or not isinstance(parameter.type, click.Choice):
            return message
        choices = [str(choice) for choice in parameter.type.choices]
        return message + suggestion(self._value(error.ctx, parameter, arguments, choices), choices)

    def _option_names(self, context: click.Context) -> list[str]:
        return [
            name
            for parameter in self.get_params(context)
            if isinstance(parameter, click.Option) and not parameter.hidden
            for name in (*parameter.opts, *parameter.secondary_opts)
        ]

    def _value(
        self,
        context: click.Context,
        parameter: click.Parameter,
        arguments: list[str],
        choices: list[str],
    ) -> str:
        """Return the parameter's first value that is not one of its choices, or ''."""
        try:
            values, _, _ = self.make_parser(context).parse_args(list(arguments))
        except click.UsageError:
            return ""
        value = values.get(parameter.name or "")
        words = value if isinstance(value, list | tuple) else [value]
        return next((each for each in words if isinstance(each, str) and each not in choices), "")


class Tool(Command):
    """A command with examples at the end of its help."""

    def __init__(self, *arguments: Any, examples: str = "", **options: Any) -> None:
        """Create a command.

        Args:
            arguments: Passed on to `Command`.
            examples: Command lines to show in the help, one per line.
            options: Passed on to `Command`.
        """
        super().__init__(*arguments, **options)
        self.examples = examples

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"{'':{formatter.current_indent}}{line.strip()}\n")
        super().format_epilog(context, formatter)


class ToolGroup(Command, click.Group):
    """A tool with subcommands (`kafka-transactions list`), or `ottla` itself."""

    wrong_arguments = WrongCommand

    def __init__(
        self,
        *arguments: Any,
        modules: Mapping[str, str] | None = None,
        sections: Mapping[str, Iterable[str]] | None = None,
        **options: Any,
    ) -> None:
        """Create a group.

        Args:
            arguments: Passed on to `Command`.
            modules: Subcommands by name, as `module:attribute`. A module is imported when its
                command is needed.
            sections: Headings of the help, each with the names of its commands in the order to
                show them. Commands in no section are listed under "Commands".
            options: Passed on to `Command`.
        """
        super().__init__(*arguments, **options)
        self._modules = modules or {}
        self._sections = sections or {}

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted({*super().list_commands(context), *self._modules})

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        everything = self.list_commands(context)
        placed = {name for names in self._sections.values() for name in names}
        others = [name for name in everything if name not in placed]
        # All sections share one column width, so that the summaries line up.
        width = max(map(len, everything), default=0)
        limit = formatter.width - COMMANDS_INDENT - width
        for heading, names in (*self._sections.items(), (COMMANDS_HEADING, others)):
            found = [(name, self.get_command(context, name)) for name in names]
            rows = [
                (name.ljust(width), command.get_short_help_str(limit))
                for name, command in found
                if command is not None and not command.hidden
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

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
        typed = list(arguments)
        try:
            return super().resolve_command(context, arguments)
        except click.NoSuchOption as error:
            raise self._wrong_arguments(error, typed, context) from None
        except click.UsageError:
            message = f"No such command '{typed[0]}'."
            message += suggestion(typed[0], self.list_commands(context))
            raise self.wrong_arguments(message, context) from None


def version_line() -> str:
    """Return the versions of Ottla and of the running Python."""
    return f"ottla {__version__} (Python {platform.python_version()})"


def _version_option() -> click.Option:
    def show(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            click.echo(version_line())
            context.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the version and exit.",
    )


def _whole_option(name: str, arguments: list[str]) -> str:
    """Return an unknown option as typed. Click parses `-topic` as `-t` and reports only that."""
    if name.startswith("--"):
        return name
    typed = (word.partition("=")[0] for word in arguments)
    return next((word for word in typed if word.startswith(name) and len(word) > len(name)), name)


def action_option(name: str, text: str) -> Callable[[F], F]:
    """Add an action flag such as `--list`. The command receives all given names as `actions`."""
    return click.option(f"--{name}", "actions", flag_value=name, multiple=True, help=text)


def run_tool(name: str, command: click.Command) -> NoReturn:
    """Run a command as a program and exit the process; `main` of every tool calls this."""
    run_command(
        lambda: command.main(prog_name=name, complete_var=COMPLETE_VARIABLE, standalone_mode=False)
    )
