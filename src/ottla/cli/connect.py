"""`ottla connect …`: import and export, as `connect-standalone` and `connect-distributed` do."""

from __future__ import annotations

import click

from ottla.cli.tool import ToolGroup

ACTIONS = {
    "distributed": "ottla.cli.connect_distributed:connect_distributed",
    "standalone": "ottla.cli.connect_standalone:connect_standalone",
}


@click.group(cls=ToolGroup, modules=ACTIONS)
def connect() -> None:
    """Move data between topics and other systems."""
