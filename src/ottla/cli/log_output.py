"""Logging of brokers and Connect workers to standard error."""

from __future__ import annotations

import logging
import re
import sys

from ottla.cli import colour

LOG_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
_UNSAFE = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that end a line, control a terminal, change the direction of text, or cannot be
written in UTF-8."""
LEVEL_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


class LogFormatter(logging.Formatter):
    """Formatter with time, level and message in Kafka's order; terminals show levels coloured.

    A message is always one line. It may contain names that clients have chosen, which must not be
    able to look like further lines of the log, or to control the terminal. A message is the whole
    line if its record has the attribute `is_whole_line`.
    """

    def __init__(self) -> None:
        super().__init__(LOG_FORMAT)
        self._has_colours = colour.is_on(sys.stderr)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = _UNSAFE.sub(_escaped, record.message)
        if getattr(record, "is_whole_line", False):  # a line of JSON for another program
            return record.message
        line = super().formatMessage(record)
        level_colour = LEVEL_COLOURS.get(record.levelname)
        if not self._has_colours or level_colour is None:
            return line
        level = colour.styled(record.levelname, sys.stderr, fg=level_colour)
        return line.replace(record.levelname, level, 1)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def log_to_standard_error(level: str) -> None:
    """Log messages of this level and above, unless the program has already configured logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
