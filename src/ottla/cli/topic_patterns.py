"""Topic selection and topic options as in Kafka's tools.

A topic pattern is a regular expression that must match the whole name; commas separate
alternatives."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

from ottla.base.errors import UserError


def matching(pattern: str | None, names: Iterable[str]) -> list[str]:
    """Return the names that match the pattern, or all names if there is no pattern."""
    if pattern is None:
        return list(names)
    expression = compile_pattern(pattern)
    return [name for name in names if expression.fullmatch(name)]


def compile_pattern(pattern: str) -> re.Pattern[str]:
    text = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(text)
    except re.error as error:
        raise UserError(f"{pattern!r} is not a valid regular expression: {error}.") from None


def parse_configs(texts: Iterable[str]) -> dict[str, str]:
    """Parse the values of `--config name=value`."""
    configs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"--config {text!r} must look like name=value.")
        configs[name.strip()] = value.strip()
    return configs


def parse_assignment(text: str) -> list[list[int]]:
    """Parse `--replica-assignment`: `0:1,1:2` lists the brokers of partition 0, of partition 1, …

    Raises:
        click.UsageError: The text is malformed or assigns replicas inconsistently.
    """
    assignment: list[list[int]] = []
    for part in text.split(","):
        try:
            brokers = [int(number) for number in part.split(":")]
        except ValueError:
            raise click.UsageError(
                f"--replica-assignment {text!r} must look like 1:2,2:3 (brokers of partition 0, "
                "of partition 1, …)."
            ) from None
        if len(set(brokers)) != len(brokers):
            raise click.UsageError(f"--replica-assignment: {part} lists a broker twice.")
        assignment.append(brokers)
    if len({len(brokers) for brokers in assignment}) != 1:
        raise click.UsageError(
            "--replica-assignment: all partitions must have the same number of replicas."
        )
    return assignment
