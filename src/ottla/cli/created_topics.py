"""A note on standard error for each topic that the brokers auto-create for a tool.

With `auto.create.topics.enable`, `kafka-console-consumer --topic ordrs` creates the topic `ordrs`
and then waits for records that never come. The note reveals the typo."""

from __future__ import annotations

import logging

from ottla.cli import colour
from ottla.client import topic_creation


class _Printer(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        colour.echo(f"{text[0].upper()}{text[1:]}.", "yellow")


_PRINTER = _Printer()


def show_created_topics() -> None:
    """Print a note for each topic that a client of this process auto-creates from now on."""
    topic_creation.logger.setLevel(logging.INFO)
    topic_creation.logger.addHandler(_PRINTER)
