"""`connect-distributed`, with the arguments of Kafka's script."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.options import log_level_option
from ottla.cli.tool import Tool, run_tool

EXAMPLES = """
connect-distributed worker.properties
connect-distributed worker.properties --master spark://host:7077
"""


@click.command(cls=Tool, examples=EXAMPLES)
@click.option("-daemon", "--daemon", "daemon", is_flag=True, help="Run in the background.")
@click.option(
    "--master",
    help="Spark master on which tasks run: local[*], spark://host:7077, yarn, k8s://…  "
    "[default: spark.master]",
)
@click.argument("worker_file", metavar="worker.properties")
@log_level_option
def connect_distributed(worker_file: str, daemon: bool, master: str | None, log_level: str) -> int:
    """Run a distributed Connect worker.

    Workers with the same group.id share their connectors and tasks. Create connectors with the REST
    API of any worker. Tasks run on Spark, or with task.engine=threads in threads of the worker.
    SIGTERM or Ctrl-C stops the worker cleanly.
    """
    from ottla.cli.connect_worker import run_distributed

    return run_distributed(worker_file, log_level, master=master, daemon=daemon)


def main() -> NoReturn:
    run_tool("connect-distributed", connect_distributed)
