"""`ottla connect plugins`: the connectors of this installation, and what others still need."""

from __future__ import annotations

import click

from ottla.cli.output import Output, output_option, table
from ottla.cli.tool import Tool

EXAMPLES = """
ottla connect plugins
ottla connect plugins --json
"""


@click.command(cls=Tool, examples=EXAMPLES)
@output_option
def connect_plugins(output: Output) -> None:
    """List the connectors that can run here, and what has to be installed for the others.

    A running worker answers the same at /connector-plugins?includeMissing=true.
    """
    from ottla.connect.plugins import connector_plugins, missing_connectors

    found, missing = connector_plugins(), missing_connectors()

    def lines() -> list[str]:
        rows = [(each.name, each.kind, each.guarantee, each.version) for each in found]
        shown = table(("CONNECTOR", "TYPE", "GUARANTEE", "VERSION"), rows)
        if missing:
            shown += [
                "",
                *table(("NOT AVAILABLE", "NEEDS"), [(m.name, m.missing) for m in missing]),
            ]
        return shown

    output.show({"connectors": found, "missing": missing}, lines)
