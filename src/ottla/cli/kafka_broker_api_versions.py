"""`kafka-broker-api-versions`: which requests each broker takes, in which versions."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.partial_failure import fail_if_any, reasons
from ottla.cli.tool import Tool, run_tool

EXAMPLES = "kafka-broker-api-versions --bootstrap-server localhost:9092"


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@output_option
def kafka_broker_api_versions(cluster: ClusterOptions, output: Output) -> None:
    """Show which requests each broker takes, and which versions this client would use."""
    with cluster.admin() as admin:
        nodes = admin.describe_cluster().nodes
        found = admin.api_versions(*nodes, return_errors=True)

    def lines() -> list[str]:
        shown = []
        for broker, versions in found.items():
            node = nodes[broker]
            rack = node.rack or "null"
            entries = ",\n\t".join(_as_text(key, each) for key, each in versions.items())
            shown.append(f"{node} (id: {broker} rack: {rack} isFenced: false) -> (\n\t{entries}\n)")
        return shown

    output.show(
        {
            "brokers": {
                broker: {_name(key): each for key, each in versions.items()}
                for broker, versions in found.items()
            },
            "errors": reasons(found.errors),
        },
        lines,
    )
    fail_if_any(found.errors, "Broker")


def _as_text(key: int, theirs: tuple[int, int]) -> str:
    low, high = theirs
    text = f"{_name(key)}({key}): {low if low == high else f'{low} to {high}'}"
    ours = _ours(key)
    if ours is None:
        return text
    if ours[-1] < low:
        return f"{text} [unusable: node too new]"
    if high < ours[0]:
        return f"{text} [unusable: node too old]"
    return f"{text} [usable: {min(ours[-1], high)}]"


def _name(key: int) -> str:
    from ottla.wire import schema

    try:
        name = schema.api_name(key)
    except KeyError:
        return "UNKNOWN"
    return "".join(word.capitalize() for word in name.split("_"))


def _ours(key: int) -> range | None:
    from ottla.wire import schema

    try:
        return schema.versions(key)
    except KeyError:
        return None


def main() -> NoReturn:
    run_tool("kafka-broker-api-versions", kafka_broker_api_versions)
