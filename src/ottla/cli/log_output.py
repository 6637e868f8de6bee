"""Logging of brokers and Connect workers to standard error."""

from __future__ import annotations

import logging
import sys

from ottla.cli import colour

LOG_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
LEVEL_COLOURS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


class LogFormatter(logging.Formatter):
    """Formatter with time, level and message in Kafka's order; terminals show levels coloured."""

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
    """Log messages of this level and above, unless the program has already configured logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
