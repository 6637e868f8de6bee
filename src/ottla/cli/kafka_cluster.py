"""`kafka-cluster`: the cluster ID and the endpoints of the brokers."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.base.errors import UserError
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option, table
from ottla.cli.tool import Tool, ToolGroup, run_tool

_options = cluster_options(
    server_names=("--bootstrap-server", "-b"),
    config_names=("--command-config", "--config", "-c"),
)


@click.group(cls=ToolGroup)
def kafka_cluster() -> None:
    """Show the cluster ID and the brokers."""


@kafka_cluster.command(
    "cluster-id", cls=Tool, examples="kafka-cluster cluster-id --bootstrap-server localhost:9092"
)
@_options
@output_option
def cluster_id(cluster: ClusterOptions, output: Output) -> None:
    """Show the cluster ID."""
    with cluster.admin() as admin:
        found = admin.describe_cluster().cluster_id
    if found is None:
        raise UserError("No cluster ID found. The Kafka version is probably too old.")
    output.show({"cluster_id": found}, lambda: [f"Cluster ID: {found}"])


@kafka_cluster.command(
    "list-endpoints",
    cls=Tool,
    examples="kafka-cluster list-endpoints --bootstrap-server localhost:9092",
)
@_options
@click.option("--include-fenced-brokers", is_flag=True, help="List fenced brokers as well.")
@output_option
def list_endpoints(cluster: ClusterOptions, output: Output, include_fenced_brokers: bool) -> None:
    """List the brokers and their endpoints."""
    with cluster.admin() as admin:
        found = admin.describe_cluster(include_fenced=include_fenced_brokers)
    output.show(
        found,
        lambda: table(
            ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"),
            (
                (
                    *(each.id, each.host, each.port, each.rack or "null"),
                    *("fenced" if each.is_fenced else "unfenced", "broker"),
                )
                for each in found.nodes.values()
            ),
        ),
    )


def main() -> NoReturn:
    run_tool("kafka-cluster", kafka_cluster)
