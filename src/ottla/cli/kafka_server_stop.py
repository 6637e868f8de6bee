"""`kafka-server-stop`: send SIGTERM to the brokers of this user, as Kafka's script does.

`--node-id` and `--process-role` are Kafka's options; `--data-dir` and `--pid-file` are Ottla's. A
broker must match all given options."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.base.errors import UserError
from ottla.cli.tool import Tool, run_tool

EXAMPLES = """
kafka-server-stop
kafka-server-stop --node-id 1
kafka-server-stop --data-dir ./data
kafka-server-stop --pid-file /run/ottla/broker.pid
"""


@click.command(cls=Tool, examples=EXAMPLES)
@click.option("--data-dir", metavar="DIR", help="Stop the broker that uses this data directory.")
@click.option("--node-id", type=int, metavar="ID", help="Stop the brokers with this node.id.")
@click.option(
    "--pid-file", metavar="FILE", help="Stop the broker that was started with this --pid-file."
)
@click.option(
    "--process-role",
    type=click.Choice(["broker", "controller"]),
    help="Stop the processes with this role. Every Ottla process has the role broker.",
)
def kafka_server_stop(
    data_dir: str | None, node_id: int | None, pid_file: str | None, process_role: str | None
) -> None:
    """Stop brokers of this user.

    Sends SIGTERM, on which brokers shut down cleanly. Without options, all brokers of this user are
    stopped.
    """
    from ottla.cli.processes import (
        ask_to_stop,
        broker_pids,
        has_open,
        node_ids,
        uses_data_directory,
    )

    if process_role == "controller":
        raise UserError(
            "No controller to stop: Ottla has no controller processes, because one of the brokers "
            "acts as the controller."
        )
    pids = broker_pids()
    missing = "No kafka server to stop"
    if data_dir is not None:
        pids = [pid for pid in pids if uses_data_directory(pid, data_dir)]
        missing = f"No broker to stop: no running broker uses the data directory {data_dir}."
    if pid_file is not None:
        pids = [pid for pid in pids if has_open(pid, pid_file)]
        missing = f"No broker to stop: no running broker was started with --pid-file {pid_file}."
    if node_id is not None:
        pids = [pid for pid in pids if node_id in node_ids(pid)]
        missing = f"No broker to stop: no running broker has node.id {node_id}."
    if (data_dir, pid_file, node_id).count(None) < 2:
        missing = "No broker to stop: no running broker matches all of these options."
    stopped = [pid for pid in pids if ask_to_stop(pid)]
    if not stopped:
        raise UserError(missing)
    for pid in stopped:
        click.echo(f"Stopping the broker with process ID {pid}.")


def main() -> NoReturn:
    run_tool("kafka-server-stop", kafka_server_stop)
