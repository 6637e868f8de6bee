"""`kafka-server-start`, called as Kafka's script of that name is."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.failure import run_command
from ottla.cli.options import check_option, log_level_option, override_option


@click.command(context_settings={"help_option_names": ["-h", "-help", "--help"]})
@click.option("-daemon", "--daemon", "daemon", is_flag=True, help="Run in the background.")
@click.option("-name", "name", hidden=True, metavar="NAME", help="Accepted and not used.")
@click.option("-loggc", "log_gc", hidden=True, is_flag=True, help="Accepted and not used.")
@click.argument("config_file", metavar="server.properties")
@override_option
@check_option
@log_level_option
def kafka_server_start(
    config_file: str,
    daemon: bool,
    name: str | None,
    log_gc: bool,
    overrides: tuple[str, ...],
    only_checks: bool,
    log_level: str,
) -> int:
    """Start a broker with Kafka's server.properties.

    In the background its output goes to $LOG_DIR/kafkaServer.out, or without LOG_DIR to
    ~/.local/state/ottla/kafkaServer.out. kafka-server-stop ends it.
    """
    from ottla.cli.start import gather, start

    launch = gather(config_file, overrides)
    if only_checks:
        from ottla.cli.broker_check import check_start

        return check_start(launch)
    return start(launch, log_level, daemon=daemon)


def main() -> NoReturn:
    run_command(
        lambda: kafka_server_start.main(prog_name="kafka-server-start", standalone_mode=False)
    )
