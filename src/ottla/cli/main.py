"""`ottla`: the commands under one name."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.broker import broker
from ottla.cli.failure import run_command
from ottla.cli.kafka_dump_log import kafka_dump_log
from ottla.cli.version import version


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def ottla() -> None:
    """Apache Kafka's broker, protocol and log format, in Python."""


ottla.add_command(broker)
ottla.add_command(kafka_dump_log, "dump-log")
ottla.add_command(version)


def main() -> NoReturn:
    run_command(lambda: ottla.main(prog_name="ottla", standalone_mode=False))
