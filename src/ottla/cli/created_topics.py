"""A line on the standard error for each topic that a tool created by using it.

`kafka-console-consumer --topic ordrs` creates the topic `ordrs` if the brokers allow it, and then
waits for records that never come; the line shows that the name is wrong."""

from __future__ import annotations

import logging

from ottla.cli import colour
from ottla.client import topic_creation


class _Printer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        colour.say(f"{text[0].upper()}{text[1:]}.", "yellow")


_PRINTER = _Printer()


def show_created_topics() -> None:
    """Print the topics that clients of this process create, from now on."""
    topic_creation.logger.setLevel(logging.INFO)
    topic_creation.logger.addHandler(_PRINTER)
