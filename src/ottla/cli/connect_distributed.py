"""`connect-distributed`, called as Kafka's script of that name is."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.options import log_level_option
from ottla.cli.tool import Tool, run_tool

EXAMPLES = """
connect-distributed worker.properties
"""


@click.command(cls=Tool, examples=EXAMPLES)
@click.option("-daemon", "--daemon", "daemon", is_flag=True, help="Run in the background.")
@click.argument("worker_file", metavar="worker.properties")
@log_level_option
def connect_distributed(worker_file: str, daemon: bool, log_level: str) -> int:
    """Run a worker that shares connectors with others of its group.id, until it is told to stop.

    Connectors are made by REST, on any of the workers.
    """
    from ottla.cli.connect_worker import run_distributed

    return run_distributed(worker_file, log_level, daemon=daemon)


def main() -> NoReturn:
    run_tool("connect-distributed", connect_distributed)
