"""`ottla`: the commands under one name."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.tool import ToolGroup, run_tool

COMMANDS = {
    "broker": "ottla.cli.broker:broker",
    "dump-log": "ottla.cli.kafka_dump_log:kafka_dump_log",
    "topics": "ottla.cli.kafka_topics:kafka_topics",
    "version": "ottla.cli.version:version",
}
"""Name -> where it is, in the order of the names."""


@click.group(cls=ToolGroup, modules=COMMANDS)
def ottla() -> None:
    """Apache Kafka's broker, protocol, log format and tools, in Python."""


def main() -> NoReturn:
    run_tool("ottla", ottla)
