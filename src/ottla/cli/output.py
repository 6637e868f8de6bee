"""Output of commands: text, or one JSON document with `--json`.

A command passes its result as a value, together with a function that renders it as lines of text:
`output.show(topics, lambda: table(("TOPIC", "PARTITIONS"), rows))`. Only the requested form is
rendered. Notes and progress go to standard error, so that standard output is always fit for another
program. Failures are exceptions: see `failure`.

Tables are plain columns, as in Kafka's tools, because scripts process them with awk. On a terminal
the heading is bold and states are coloured; see `colour`."""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

import click

from ottla.cli import colour

F = TypeVar("F", bound=Callable[..., Any])
NOTHING = "-"
"""Placeholder for a missing value in a table."""
STATE_COLUMN = "STATE"
STATE_COLOURS = {
    **dict.fromkeys(("up", "unfenced", "Stable"), "green"),
    **dict.fromkeys(("down", "fenced", "Dead"), "red"),
    **dict.fromkeys(
        ("Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"), "yellow"
    ),
}
"""Colours of values in the column STATE."""


class Output:
    """Writer for the results of a command, as text or as JSON."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    def show(self, value: object, text: Callable[[], Iterable[str]]) -> None:
        """Print the result of a command: `value` as JSON, or the lines of `text`."""
        if self.as_json:
            click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))
        else:
            for line in text():
                click.echo(line)

    def show_next(self, value: object, text: Callable[[], str]) -> None:
        """Print one of a series of results: `value` as JSON on one line, or `text`."""
        if self.as_json:
            click.echo(json.dumps(plain(value), ensure_ascii=False))
        else:
            click.echo(text())

    def note(self, sentence: str) -> None:
        """Print a note to standard error, for information that is not part of the result."""
        click.echo(sentence, err=True)

    def warning(self, sentence: str) -> None:
        """Print a warning to standard error; the command continues."""
        colour.echo(sentence, "yellow")

    def failure(self, sentence: str) -> None:
        """Print a partial failure to standard error; the command continues and exits with 1."""
        colour.echo(sentence, "red")


def output_option(function: F) -> F:
    """Add `--json` to a command, which receives an `Output` as `output`."""
    return click.option(
        "--json",
        "output",
        is_flag=True,
        callback=lambda context, parameter, value: Output(as_json=value),
        help="Print one JSON document instead of text.",
    )(function)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a heading and rows as lines with aligned columns."""
    cells = [tuple(columns), *(tuple(map(_cell, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    has_colours = colour.is_on(sys.stdout)
    lines = []
    for number, row in enumerate(cells):
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        padded[-1] = padded[-1].rstrip()
        if has_colours and number:
            padded = [_coloured(*each) for each in zip(columns, row, padded, strict=True)]
        line = " ".join(padded).rstrip()
        lines.append(click.style(line, bold=True) if has_colours and not number else line)
    return lines


def _coloured(column: str, cell: str, padded: str) -> str:
    wanted = STATE_COLOURS.get(cell) if column == STATE_COLUMN else None
    # Style the text without its padding, so that the next column stays aligned.
    return padded if wanted is None else click.style(cell, fg=wanted) + padded[len(cell) :]


def _cell(value: object) -> str:
    return NOTHING if value is None or value == "" else str(value)


def plain(value: object) -> Any:
    """Convert a value to JSON types.

    Dataclasses and named tuples become objects and enums their names. Bytes become text if they are
    valid UTF-8, otherwise base64."""
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return _text_or_base64(bytes(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if field.repr]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, Mapping):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain, value))
    if isinstance(value, Iterable):
        return [plain(each) for each in value]
    return str(value)


def _key(key: object) -> str:
    return key.name if isinstance(key, Enum) else str(key)


def _text_or_base64(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode("ascii")
