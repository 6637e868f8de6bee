"""`ottla version`: print the version."""

from __future__ import annotations

import click

from ottla.cli.tool import Command, version_line


@click.command(cls=Command)
def version() -> None:
    """Print the version."""
    click.echo(version_line())
