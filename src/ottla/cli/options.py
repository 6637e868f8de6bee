"""Options that several commands share."""

from __future__ import annotations

import click

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
