"""`ottla cluster`: run a local cluster, show the status of any cluster, decommission brokers.

The subcommands of `kafka-cluster` are available as well."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from ottla.cli import colour
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option, table
from ottla.cli.tool import Tool, ToolGroup

data_dir_option = click.option(
    "--data-dir",
    metavar="DIR",
    help="Directory of the cluster's data.  [default: ~/.local/share/ottla/cluster]",
)


@click.group(
    cls=ToolGroup,
    modules={
        "cluster-id": "ottla.cli.kafka_cluster:cluster_id",
        "list-endpoints": "ottla.cli.kafka_cluster:list_endpoints",
    },
)
def cluster() -> None:
    """Run a local cluster, or inspect any cluster."""


def _directory(data_dir: str | None) -> Path:
    """Return the data directory of `cluster up`, as an absolute path."""
    from ottla.cli.paths import default_data_directory

    return Path(data_dir or f"{default_data_directory()}/cluster").absolute()


@cluster.command(
    "up",
    cls=Tool,
    examples="""ottla cluster up --brokers 3
    ottla cluster up --brokers 3 --data-dir ./cluster --port 19092
    ottla cluster up --secure
    ottla cluster up --zookeeper zk1:2181,zk2:2181/test""",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Number of brokers.",
)
@data_dir_option
@click.option(
    "--port",
    default=9092,
    show_default=True,
    help="Port of the first broker. The others use the following ports.",
)
@click.option(
    "--listen",
    "host",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="Address that the brokers listen on. Use 0.0.0.0 for all interfaces.",
)
@click.option(
    "--secure",
    "is_secure",
    is_flag=True,
    help="Use TLS and authentication for all connections: of clients, between brokers and to "
    "ZooKeeper.",
)
@click.option(
    "--insecure",
    "is_insecure",
    is_flag=True,
    help="Allow --listen on an address that other machines can reach, without --secure.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]",
    help="Existing ZooKeeper to use instead of starting one. The chroot defaults to /ottla.",
)
@click.option(
    "--override",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    help="Property of every broker. May be repeated.",
)
def up(
    brokers: int,
    data_dir: str | None,
    port: int,
    host: str,
    is_secure: bool,
    is_insecure: bool,
    zookeeper: str | None,
    overrides: tuple[str, ...],
) -> int:
    """Start a local cluster and run it until Ctrl-C.

    Starts ZooKeeper as well, which requires Java and ZooKeeper's jars, unless --zookeeper names an
    existing one. With --secure, certificates, users and the administrator's profile are made in
    the directory `secure` of --data-dir.
    """
    from ottla.base.config.properties import parse_override
    from ottla.cli.local_cluster import LocalCluster

    properties = dict(parse_override(each) for each in overrides)
    directory = str(_directory(data_dir))
    return LocalCluster(
        directory,
        brokers,
        port,
        properties,
        click.echo,
        zookeeper,
        host=host,
        is_secure=is_secure,
        is_insecure=is_insecure,
    ).run()


@cluster.command(
    "stop",
    cls=Tool,
    examples="""ottla cluster stop 2
    ottla cluster stop --data-dir ./cluster""",
)
@click.argument("brokers", type=int, nargs=-1, metavar="[ID]...")
@data_dir_option
def stop(brokers: tuple[int, ...], data_dir: str | None) -> None:
    """Stop some or all brokers of a local cluster.

    The brokers with the given IDs hand over their leaderships, shut down, and stay stopped until
    `ottla cluster start`. Without an ID, all brokers and ZooKeeper are stopped.
    """
    from ottla.cli.cluster_control import stop_brokers, stop_cluster

    directory = _directory(data_dir)
    if brokers:
        stop_brokers(directory, brokers, click.echo)
    else:
        stop_cluster(directory)
        click.echo("The cluster has stopped.")


@cluster.command("start", cls=Tool, examples="ottla cluster start 2")
@click.argument("brokers", type=int, nargs=-1, required=True, metavar="ID...")
@data_dir_option
def start(brokers: tuple[int, ...], data_dir: str | None) -> None:
    """Start stopped brokers of a local cluster."""
    from ottla.cli.cluster_control import start_brokers

    start_brokers(_directory(data_dir), brokers, click.echo)


@cluster.command(
    "status",
    cls=Tool,
    examples="""ottla cluster status --bootstrap-server localhost:9092
    ottla cluster status --data-dir ./cluster""",
)
@data_dir_option
@cluster_options()
@output_option
def status(cluster: ClusterOptions, output: Output, data_dir: str | None) -> None:
    """Show brokers, controller and unhealthy partitions.

    A broker is listed as down if it is registered or hosts replicas but is not alive. With TLS,
    the command shows when the certificates of the listeners that it connects to expire. Without
    --bootstrap-server, --command-config and a default profile, the command connects to the secured
    local cluster that runs in --data-dir, if there is one.
    """
    from ottla.cli.cluster_status import cluster_status

    with _local(cluster, data_dir).admin() as admin:
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
        certificates = [each for each in found.brokers if each.certificate_expires is not None]
        if certificates:
            lines += table(
                ("BROKER", "CERTIFICATE EXPIRES"),
                ((each.id, each.certificate_expires) for each in certificates),
            )
        for title, problems, fg in (
            ("Under-replicated partitions", found.under_replicated, "yellow"),
            ("Offline partitions", found.offline, "red"),
            ("Log directories that reject writes", found.refusing_writes, "red"),
            *(
                [("Certificates that expire soon", found.expiring_certificates, "yellow")]
                if certificates
                else []
            ),
        ):
            line = f"{title}: {len(problems)}"
            lines.append(colour.styled(line, sys.stdout, fg=fg) if problems else line)
            lines += [f"  {each}" for each in problems]
        return lines

    output.show(found, text)


def _local(cluster: ClusterOptions, data_dir: str | None) -> ClusterOptions:
    """Return the options for the local cluster if the command line names no other."""
    from ottla.cli.cluster_control import is_running
    from ottla.cli.secure.layout import LOCAL_DIRECTORY, SecureDirectory
    from ottla.client.profile import default_profile_path

    if cluster.bootstrap is not None or cluster.config_file is not None:
        return cluster
    directory = _directory(data_dir)
    profile = SecureDirectory(directory / LOCAL_DIRECTORY).admin_profile
    has_other = default_profile_path(names_brokers=False) is not None
    if not profile.exists() or (data_dir is None and (has_other or not is_running(directory))):
        return cluster
    return replace(cluster, config_file=str(profile))


@cluster.command("decommission", cls=Tool, examples="ottla cluster decommission 3")
@click.argument("broker", type=int)
@cluster_options()
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    help="Seconds to wait. The reassignment continues in the background.  [default: no limit]",
)
@output_option
def decommission(
    cluster: ClusterOptions, output: Output, broker: int, timeout_s: float | None
) -> None:
    """Move all replicas from a broker before its removal."""
    from ottla.cli.decommission import decommission as move_away

    with cluster.admin() as admin:
        moved = move_away(admin, broker, timeout_s, output.note)
    output.show(
        {"broker": broker, "moved": moved},
        lambda: [f"Broker {broker} has no replicas left ({moved} moved). You can stop it now."],
    )
