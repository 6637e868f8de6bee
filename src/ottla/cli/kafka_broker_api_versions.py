"""`kafka-broker-api-versions`: the requests and versions that each broker supports."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.partial_failure import fail_if_any, reasons
from ottla.cli.tool import Tool, run_tool

if TYPE_CHECKING:
    from ottla.client.admin import ApiVersions

EXAMPLES = "kafka-broker-api-versions --bootstrap-server localhost:9092"


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@output_option
def kafka_broker_api_versions(cluster: ClusterOptions, output: Output) -> None:
    """Show the API versions that brokers support.

    For each broker, lists the supported version range of every request and the version that this
    client would use.
    """
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
                broker: {
                    each.name: {"api_key": key, **each._asdict(), "usable": each.usable}
                    for key, each in versions.items()
                }
                for broker, versions in found.items()
            },
            "errors": reasons(found.errors),
        },
        lines,
    )
    fail_if_any(found.errors, "Broker")


def _as_text(key: int, versions: ApiVersions) -> str:
    low, high = versions.minimum, versions.maximum
    text = f"{versions.name}({key}): {low if low == high else f'{low} to {high}'}"
    if versions.client_maximum is None:
        return text
    if versions.usable is not None:
        return f"{text} [usable: {versions.usable}]"
    too = "new" if versions.client_maximum < low else "old"
    return f"{text} [unusable: node too {too}]"


def main() -> NoReturn:
    run_tool("kafka-broker-api-versions", kafka_broker_api_versions)
