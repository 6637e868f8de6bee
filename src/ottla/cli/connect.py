"""`ottla connect …`: import and export. `connect-standalone` is one of its actions."""

from __future__ import annotations

import click

from ottla.cli.tool import ToolGroup

ACTIONS = {"standalone": "ottla.cli.connect_standalone:connect_standalone"}


@click.group(cls=ToolGroup, modules=ACTIONS)
def connect() -> None:
    """Move data between topics and other systems."""
