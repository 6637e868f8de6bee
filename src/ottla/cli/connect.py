"""`ottla connect …`: `connect-standalone`, `connect-distributed`, and a list of the plugins."""

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
    """Move data between topics and other systems."""
