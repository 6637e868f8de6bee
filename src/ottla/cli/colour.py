"""Rules for coloured output: on for terminals, off for pipes and files.

`NO_COLOR` (https://no-color.org) and `TERM=dumb` turn colours off everywhere; `FORCE_COLOR`
(https://force-color.org) turns them on in pipes and files as well. JSON is never coloured."""

from __future__ import annotations

import os
from typing import IO, Any


def setting() -> bool | None:
    """Return the environment's choice, or None to decide per stream (click's `color`)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return False if os.environ.get("TERM") == "dumb" else None


def is_on(stream: IO[Any]) -> bool:
    """Return whether text written to this stream may be coloured."""
    wanted = setting()
    return stream.isatty() if wanted is None else wanted


def styled(text: str, stream: IO[Any], **style: Any) -> str:
    """Return the text styled with `click.style`, or unchanged if the stream is not coloured."""
    if not is_on(stream):
        return text
    import click  # imported here so that a broker without a terminal does not load click

    return click.style(text, **style)


def echo(text: str, fg: str) -> None:
    """Write a line to standard error, coloured if it is a terminal."""
    import click

    click.secho(text, fg=fg, err=True, color=setting())
