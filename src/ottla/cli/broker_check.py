"""`--check` of `ottla broker` and `kafka-server-start`: print one finding per line."""

from __future__ import annotations

import logging

import click

from ottla.base.config.broker import BrokerConfig
from ottla.base.errors import UserError
from ottla.cli.start import Launch, exposure_warnings

WORDS = {
    logging.INFO: click.style("OK", fg="green"),
    logging.WARNING: click.style("WARNING", fg="yellow"),
    logging.ERROR: click.style("ERROR", fg="red"),
}


def check_start(launch: Launch, *, allow_exposed: bool = True) -> int:
    """Print the findings of a start, and return 0 if the broker can start, otherwise 1."""
    # The findings include the warnings; without a handler Python would print them once more.
    logging.getLogger("ottla").addHandler(logging.NullHandler())
    levels = [_show(level, text) for level, text in _findings(launch, allow_exposed=allow_exposed)]
    return 1 if logging.ERROR in levels else 0


def _findings(launch: Launch, *, allow_exposed: bool) -> list[tuple[int, str]]:
    problems = BrokerConfig.problems(launch.properties)
    if problems:
        return [(logging.ERROR, problem) for problem in problems]
    config = BrokerConfig.from_properties(launch.properties)
    found = [(logging.INFO, "configuration: all values are valid")]
    found += config.notices()
    try:
        warnings = exposure_warnings(launch, config, allow_exposed=allow_exposed)
        found += [(logging.WARNING, text) for text in (*launch.warnings, *warnings)]
    except UserError as error:
        found.append((logging.ERROR, str(error)))
    from ottla.broker.check import check

    return [*found, *check(config)]


def _show(level: int, text: str) -> int:
    click.echo(f"{WORDS[level]} {text.rstrip('.')}")
    return level
