"""`connect-standalone`, with the arguments of Kafka's script."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.options import log_level_option
from ottla.cli.tool import Tool, run_tool

EXAMPLES = """
connect-standalone worker.properties file-source.properties file-sink.properties
connect-standalone worker.properties file-source.properties --master local[*]
"""


@click.command(cls=Tool, examples=EXAMPLES)
@click.option("-daemon", "--daemon", "daemon", is_flag=True, help="Run in the background.")
@click.option(
    "--master",
    help="Spark master on which tasks run: local[*], spark://host:7077, yarn, k8s://…  "
    "[default: spark.master]",
)
@click.argument("worker_file", metavar="worker.properties")
@click.argument("connector_files", metavar="[connector.properties …]", nargs=-1)
@log_level_option
def connect_standalone(
    worker_file: str,
    connector_files: tuple[str, ...],
    daemon: bool,
    master: str | None,
    log_level: str,
) -> int:
    """Run connectors in a single standalone worker.

    The first file configures the worker. Each further file configures one connector, in properties
    or JSON format. Tasks are threads of the worker, or tasks of Spark if there is a Spark master.
    SIGTERM or Ctrl-C stops the worker cleanly.
    """
    from ottla.cli.connect_worker import run_standalone

    return run_standalone(worker_file, connector_files, log_level, master=master, daemon=daemon)


def main() -> NoReturn:
    run_tool("connect-standalone", connect_standalone)
