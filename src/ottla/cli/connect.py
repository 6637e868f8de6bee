"""`ottla connect`: `connect-standalone`, `connect-distributed` and the list of connectors."""

from __future__ import annotations

import click

from ottla.cli.tool import ToolGroup

ACTIONS = {
    "distributed": "ottla.cli.connect_distributed:connect_distributed",
    "plugins": "ottla.cli.connect_plugins:connect_plugins",
    "standalone": "ottla.cli.connect_standalone:connect_standalone",
}


@click.group(cls=ToolGroup, modules=ACTIONS)
def connect() -> None:
    """Run Kafka Connect workers and list connectors."""
