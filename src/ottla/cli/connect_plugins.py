"""`ottla connect plugins`: installed connectors, and the packages that the others require."""

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
    """List the available connectors and what others require.

    A running worker serves the same list at /connector-plugins?includeMissing=true.
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
