"""The log of a broker or a Connect worker, on the standard error."""

from __future__ import annotations

import logging
import sys

from ottla.cli import colour

LOG_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
LEVEL_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


class LogFormatter(logging.Formatter):
    """Kafka's order of time, level and message; the level has a colour on a terminal."""

    def __init__(self) -> None:
        super().__init__(LOG_FORMAT)
        self._has_colours = colour.is_on(sys.stderr)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        line = super().formatMessage(record)
        level_colour = LEVEL_COLOURS.get(record.levelname)
        if not self._has_colours or level_colour is None:
            return line
        level = colour.styled(record.levelname, sys.stderr, fg=level_colour)
        return line.replace(record.levelname, level, 1)


def log_to_standard_error(level: str) -> None:
    """Log records of this level and above, unless the program has configured logging already."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
