"""`ottla version`."""

from __future__ import annotations

import platform

import click

from ottla import __version__


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(f"ottla {__version__} (Python {platform.python_version()})")
