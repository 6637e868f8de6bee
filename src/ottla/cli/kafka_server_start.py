"""`kafka-server-start`, with the arguments of Kafka's script."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.options import check_option, log_level_option, override_option, pid_file_option
from ottla.cli.tool import HELP, Tool, run_tool

EXAMPLES = """
kafka-server-start server.properties
kafka-server-start -daemon server.properties --pid-file broker.pid
kafka-server-start server.properties --override log.retention.hours=24
"""


@click.command(
    cls=Tool,
    examples=EXAMPLES,
    context_settings={**HELP, "help_option_names": ["-h", "-help", "--help"]},
)
@click.option("-daemon", "--daemon", "daemon", is_flag=True, help="Run in the background.")
@click.option("-name", "name", hidden=True, metavar="NAME", help="Accepted and ignored.")
@click.option("-loggc", "log_gc", hidden=True, is_flag=True, help="Accepted and ignored.")
@click.argument("config_file", metavar="server.properties")
@override_option
@check_option
@pid_file_option
@log_level_option
def kafka_server_start(
    config_file: str,
    daemon: bool,
    name: str | None,
    log_gc: bool,
    overrides: tuple[str, ...],
    only_checks: bool,
    pid_file: str | None,
    log_level: str,
) -> int:
    """Start a broker with a server.properties file.

    With -daemon, the broker writes its output to $LOG_DIR/kafkaServer.out, or to
    ~/.local/state/ottla/kafkaServer.out if LOG_DIR is not set. Stop it with kafka-server-stop.
    """
    from ottla.cli.start import load_launch, start

    launch = load_launch(config_file, overrides)
    if only_checks:
        from ottla.cli.broker_check import check_start

        return check_start(launch)
    return start(launch, log_level, daemon=daemon, pid_file=pid_file)


def main() -> NoReturn:
    run_tool("kafka-server-start", kafka_server_start)
