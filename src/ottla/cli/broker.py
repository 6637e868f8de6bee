"""`ottla broker`: start a broker in the foreground."""

from __future__ import annotations

import click

from ottla.cli.options import log_level_option, override_option


@click.command()
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="A server.properties file, with Kafka's property names.",
)
@override_option
@click.option("--data-dir", metavar="DIR", help="Where the logs are kept (log.dirs).")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where to listen (listeners); port 0 is any free port.  [default: 127.0.0.1:9092]",
)
@log_level_option
def broker(
    config_file: str | None,
    overrides: tuple[str, ...],
    data_dir: str | None,
    listen: str | None,
    log_level: str,
) -> int:
    """Start a broker.

    Without options it listens on 127.0.0.1:9092 and keeps its data in $XDG_DATA_HOME/ottla, or
    ~/.local/share/ottla. SIGTERM or Ctrl-C stops it cleanly.
    """
    from ottla.cli.start import gather_properties, start

    return start(
        gather_properties(config_file, overrides, data_dir=data_dir, listen=listen), log_level
    )
