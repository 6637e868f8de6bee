"""`kafka-server-stop`: ask the brokers of this user to stop, as Kafka's script does."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

import click

from ottla.base.errors import UserError
from ottla.cli.failure import run_command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def kafka_server_stop() -> None:
    """Send SIGTERM to every broker of this user; they stop cleanly by themselves."""
    from ottla.cli.processes import broker_pids

    stopped = [pid for pid in broker_pids() if _ask_to_stop(pid)]
    if not stopped:
        raise UserError("No kafka server to stop")
    for pid in stopped:
        click.echo(f"Stopping the broker with process id {pid}.")


def _ask_to_stop(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True


def main() -> NoReturn:
    run_command(
        lambda: kafka_server_stop.main(prog_name="kafka-server-stop", standalone_mode=False)
    )
