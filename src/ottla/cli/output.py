"""How a command says what it found: text for people, or one JSON document with `--json`.

A command works out a value and hands it over with the lines that show it to a person:
`output.show(topics, lambda: table(("TOPIC", "PARTITIONS"), rows))`. Only one of the two is made.
What is not a result (notes, progress) goes to the standard error, so that the output of a command
can always be read by another program. Failures are exceptions: see `failure`.

Tables are plain columns, as Kafka's own tools print them, because people cut them with awk. On a
terminal the heading is bold and states have colours; see `colour`."""

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
"""What a table shows where there is no value."""
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
    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    def show(self, value: object, text: Callable[[], Iterable[str]]) -> None:
        """The result of a command: `value` for machines, or the lines of `text` for people."""
        if self.as_json:
            click.echo(json.dumps(plain(value), indent=2, ensure_ascii=False))
        else:
            for line in text():
                click.echo(line)

    def show_next(self, value: object, text: Callable[[], str]) -> None:
        """One of many results that come one after another: a JSON document to a line."""
        if self.as_json:
            click.echo(json.dumps(plain(value), ensure_ascii=False))
        else:
            click.echo(text())

    def note(self, sentence: str) -> None:
        """Something worth knowing that is no result."""
        click.echo(sentence, err=True)

    def warning(self, sentence: str) -> None:
        """Something that probably is not as intended, while the command goes on."""
        colour.say(sentence, "yellow")

    def failure(self, sentence: str) -> None:
        """A part that failed while the rest goes on; the command still ends with exit code 1."""
        colour.say(sentence, "red")


def output_option(function: F) -> F:
    """Adds `--json`; the command gets an `output`."""
    return click.option(
        "--json",
        "output",
        is_flag=True,
        callback=lambda context, parameter, value: Output(as_json=value),
        help="Print one JSON document instead of text.",
    )(function)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return lines of aligned columns under their names."""
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
    # The padding stays outside: a colour must not change where the next column begins.
    return padded if wanted is None else click.style(cell, fg=wanted) + padded[len(cell) :]


def _cell(value: object) -> str:
    return NOTHING if value is None or value == "" else str(value)


def plain(value: object) -> Any:
    """A value as JSON has them: dataclasses and named tuples as objects, enums by name, bytes as
    text or, where they are none, in base64."""
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
