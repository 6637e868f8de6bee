"""`ottla cluster`: start a cluster on this machine, look at one, take a broker out of it.

What `kafka-cluster` does is here too."""

from __future__ import annotations

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option, table
from ottla.cli.tool import Tool, ToolGroup


@click.group(
    cls=ToolGroup,
    modules={
        "cluster-id": "ottla.cli.kafka_cluster:cluster_id",
        "list-endpoints": "ottla.cli.kafka_cluster:list_endpoints",
    },
)
def cluster() -> None:
    """Start a cluster on this machine, or look at one."""


@cluster.command(
    "up",
    cls=Tool,
    examples="""ottla cluster up --brokers 3
    ottla cluster up --brokers 3 --data-dir ./cluster --port 19092""",
)
@click.option("--brokers", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option("--data-dir", metavar="DIR", help="Where all of it is kept.")
@click.option(
    "--port", default=9092, show_default=True, help="Of the first broker; the others follow."
)
@click.option(
    "--override",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    help="A property for every broker; may be repeated.",
)
def up(brokers: int, data_dir: str | None, port: int, overrides: tuple[str, ...]) -> int:
    """Start a cluster, and keep it running until Ctrl-C.

    ZooKeeper is started with it, from the jars of PySpark.
    """
    from ottla.base.config.properties import parse_override
    from ottla.cli.local_cluster import LocalCluster
    from ottla.cli.paths import default_data_directory

    properties = dict(parse_override(each) for each in overrides)
    place = data_dir or f"{default_data_directory()}/cluster"
    return LocalCluster(place, brokers, port, properties, click.echo).run()


@cluster.command(
    "status", cls=Tool, examples="ottla cluster status --bootstrap-server localhost:9092"
)
@cluster_options()
@output_option
def status(cluster: ClusterOptions, output: Output) -> None:
    """Show all brokers with their state, the controller, and unhealthy partitions.

    A broker that is registered or hosts replicas but is not alive is listed as down.
    """
    from ottla.cli.cluster_status import cluster_status

    with cluster.admin() as admin:
        found = cluster_status(admin)

    def text() -> list[str]:
        controller = "none" if found.controller is None else found.controller
        lines = [f"Cluster {found.cluster_id}, controller {controller}"]
        lines += table(
            ("BROKER", "ENDPOINT", "RACK", "STATE", "LEADERS", "REPLICAS"),
            (
                (each.id, each.endpoint, each.rack, each.state, each.leaders, each.replicas)
                for each in found.brokers
            ),
        )
        lines.append(f"Under-replicated partitions: {len(found.under_replicated)}")
        lines += [f"  {each}" for each in found.under_replicated]
        lines.append(f"Offline partitions: {len(found.offline)}")
        lines += [f"  {each}" for each in found.offline]
        lines.append(f"Log directories that refuse writes: {len(found.refusing_writes)}")
        lines += [f"  {each}" for each in found.refusing_writes]
        return lines

    output.show(found, text)


@cluster.command("decommission", cls=Tool, examples="ottla cluster decommission 3")
@click.argument("broker", type=int)
@cluster_options()
@click.option("--timeout", "timeout_s", type=float, help="Seconds; the moving goes on behind it.")
@output_option
def decommission(
    cluster: ClusterOptions, output: Output, broker: int, timeout_s: float | None
) -> None:
    """Move every replica away from a broker, so that it can be stopped for good."""
    from ottla.cli.decommission import decommission as move_away

    with cluster.admin() as admin:
        moved = move_away(admin, broker, timeout_s, output.note)
    output.show(
        {"broker": broker, "moved": moved},
        lambda: [f"Broker {broker} holds nothing any more ({moved} replicas moved); stop it."],
    )
