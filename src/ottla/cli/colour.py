"""Whether output has colours: on a terminal, unless the environment decides.

`NO_COLOR` (https://no-color.org) and `TERM=dumb` turn colours off everywhere, `FORCE_COLOR`
(https://force-color.org) turns them on in pipes and files, too. JSON never has colours."""

from __future__ import annotations

import os
from typing import IO, Any


def setting() -> bool | None:
    """Return what the environment demands, or None if each stream decides: `color` of click."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return False if os.environ.get("TERM") == "dumb" else None


def is_on(stream: IO[Any]) -> bool:
    """Return whether text that is written to this stream may have colours."""
    wanted = setting()
    return stream.isatty() if wanted is None else wanted


def styled(text: str, stream: IO[Any], **style: Any) -> str:
    """Return the text in a style of `click.style`, or unchanged if the stream has no colours."""
    if not is_on(stream):
        return text
    import click  # here, because a broker that runs without a terminal need not load it

    return click.style(text, **style)


def say(text: str, fg: str) -> None:
    """Write a line to the standard error, in a colour if that is a terminal."""
    import click

    click.secho(text, fg=fg, err=True, color=setting())
