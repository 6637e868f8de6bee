"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)

override_option = click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Broker property that overrides the configuration file. May be repeated.",
)

check_option = click.option(
    "--check",
    "only_checks",
    is_flag=True,
    help="Check the configuration, the data directories and the ports, print the findings, and "
    "exit without changing anything. The exit code is 0 if a broker can start, otherwise 1.",
)

pid_file_option = click.option(
    "--pid-file",
    metavar="FILE",
    help="File that holds the process ID while the broker runs, for kafka-server-stop --pid-file.",
)

log_level_option = click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Lowest level to log.",
)

_RESET_TARGETS = (
    click.option("--to-offset", type=int, help="Reset offsets to this offset."),
    click.option(
        "--shift-by",
        type=int,
        metavar="N",
        help="Shift the committed offsets by N, or back if N is negative.",
    ),
    click.option(
        "--to-datetime",
        metavar="YYYY-MM-DDTHH:mm:SS.sss",
        help="Reset offsets to the first record at or after this time (UTC).",
    ),
    click.option(
        "--by-duration",
        metavar="PnDTnHnMnS",
        help="Reset offsets to the first record within this duration before now.",
    ),
)


def reset_target_options(command: Command) -> Command:
    """Add the options that select a new offset: by number, distance, time or duration."""
    for option in reversed(_RESET_TARGETS):
        command = option(command)
    return command
