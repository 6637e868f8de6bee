"""The transient line that a tool shows while it waits for its first broker.

A client logs a warning when it cannot reach a broker. A tool that gives up prints the same reason
as its error, so a terminal shows the warning only until then, and other outputs not at all.
Warnings after the first broker has answered are printed as usual, and a program that configures
logging receives all of them."""

from __future__ import annotations

import logging
import sys
from functools import cache

from ottla.cli.failure import ERASE_LINE
from ottla.client import reachability


class WaitingLine(logging.Filter):
    """Log filter that turns warnings of a starting client into one transient terminal line."""

    def __init__(self) -> None:
        super().__init__()
        self._is_shown = False

    def filter(self, record: logging.LogRecord) -> bool:
        if logging.getLogger().handlers:
            return True
        is_warning = record.levelno >= logging.WARNING
        if is_warning and getattr(record, "is_starting", False):
            self._show(record.getMessage())
            return False
        self._erase()
        return is_warning

    def _show(self, text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"{ERASE_LINE}{text[0].upper()}{text[1:]} …")
            sys.stderr.flush()
            self._is_shown = True

    def _erase(self) -> None:
        if self._is_shown:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()
            self._is_shown = False


@cache
def show_waiting() -> WaitingLine:
    """Show connection warnings of starting clients as one transient line from now on."""
    line = WaitingLine()
    reachability.logger.setLevel(logging.INFO)  # the message about the first reached broker
    reachability.logger.addFilter(line)
    return line
