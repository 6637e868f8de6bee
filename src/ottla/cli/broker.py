"""`ottla broker`: start a broker in the foreground."""

from __future__ import annotations

import click

from ottla.cli.options import check_option, log_level_option, override_option, pid_file_option
from ottla.cli.tool import Tool

EXAMPLES = """
ottla broker
ottla broker --listen 127.0.0.1:9093 --data-dir ./data --override num.partitions=3
ottla broker --config server.properties --pid-file broker.pid
ottla broker --secure ./secure
"""


@click.command(cls=Tool, examples=EXAMPLES)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Configuration file in the format of Kafka's server.properties.",
)
@click.option(
    "--secure",
    "secure_dir",
    metavar="DIR",
    help="Directory of `ottla secure init`; the same as --config DIR/server.properties.",
)
@override_option
@click.option("--data-dir", metavar="DIR", help="Directory of the partition logs (log.dirs).")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address to listen on (listeners). Use 0.0.0.0 for all interfaces and port 0 for any "
    "free port. The security protocol of a listener in --config remains.  "
    "[default: 127.0.0.1:9092]",
)
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="Address that clients connect to (advertised.listeners).  [default: the address of "
    "--listen, or this machine's address if that is all interfaces]",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Allow --listen on an address that other machines can reach, although the listener has "
    "neither encryption nor authentication.",
)
@check_option
@pid_file_option
@log_level_option
def broker(
    config_file: str | None,
    secure_dir: str | None,
    overrides: tuple[str, ...],
    data_dir: str | None,
    listen: str | None,
    advertise: str | None,
    insecure: bool,
    only_checks: bool,
    pid_file: str | None,
    log_level: str,
) -> int:
    """Start a broker.

    Without options, the broker listens on 127.0.0.1:9092 and stores its data in
    $XDG_DATA_HOME/ottla or ~/.local/share/ottla. SIGTERM, Ctrl-C and kafka-server-stop stop it
    cleanly.
    """
    from ottla.cli.start import load_launch, start

    if secure_dir is not None:
        if config_file is not None:
            raise click.UsageError("--secure and --config cannot be used together.")
        from ottla.cli.secure.layout import SecureDirectory

        config_file = str(SecureDirectory(secure_dir).find_server())
    launch = load_launch(
        config_file, overrides, data_dir=data_dir, listen=listen, advertise=advertise
    )
    if only_checks:
        from ottla.cli.broker_check import check_start

        return check_start(launch, allow_exposed=insecure)
    return start(launch, log_level, allow_exposed=insecure, pid_file=pid_file)
