"""Options that several commands share."""

from __future__ import annotations

import click

override_option = click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A property that overrides the file; may be repeated.",
)

check_option = click.option(
    "--check",
    "only_checks",
    is_flag=True,
    help="Check the configuration, data directories and ports, print what is found, and exit: "
    "with 0 if a broker can start, else with 1. Nothing is changed.",
)

pid_file_option = click.option(
    "--pid-file",
    metavar="FILE",
    help="Write the process ID to this file while the broker runs; kafka-server-stop --pid-file "
    "stops it.",
)

log_level_option = click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
    help="The lowest level that is logged.",
)
