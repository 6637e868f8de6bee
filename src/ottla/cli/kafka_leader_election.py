"""`kafka-leader-election`: preferred and unclean leader elections."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.base.types import TopicPartition
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.partial_failure import fail_if_any, reasons
from ottla.cli.tool import Tool, run_tool

EXAMPLES = """
kafka-leader-election --election-type preferred --all-topic-partitions
kafka-leader-election --election-type unclean --topic orders --partition 0
"""


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options(config_names=("--admin.config", "--command-config"))
@click.option(
    "--election-type",
    required=True,
    type=click.Choice(["preferred", "unclean"], case_sensitive=False),
    help="Type of the election: preferred elects the preferred replica, unclean elects any live "
    "replica of partitions without a leader, even if records are lost.",
)
@click.option("--topic", help="Topic of the partition. Requires --partition.")
@click.option("--partition", type=int, help="Number of the partition. Requires --topic.")
@click.option("--all-topic-partitions", is_flag=True, help="Elect the leaders of all partitions.")
@click.option("--path-to-json-file", metavar="FILE", help="JSON file that lists the partitions.")
@output_option
def kafka_leader_election(
    cluster: ClusterOptions,
    output: Output,
    election_type: str,
    topic: str | None,
    partition: int | None,
    all_topic_partitions: bool,
    path_to_json_file: str | None,
) -> None:
    """Elect partition leaders."""
    from ottla.cli.partition_files import read_partitions
    from ottla.client.admin import ElectionType

    ways = [topic is not None, all_topic_partitions, path_to_json_file is not None]
    if sum(ways) != 1:
        raise click.UsageError(
            "Give exactly one of --topic, --all-topic-partitions and --path-to-json-file."
        )
    if (topic is None) != (partition is None):
        raise click.UsageError("--topic and --partition must be given together.")
    wanted: list[TopicPartition] | None = None
    if topic is not None and partition is not None:
        wanted = [TopicPartition(topic, partition)]
    elif path_to_json_file is not None:
        wanted = read_partitions(path_to_json_file)
    kind = ElectionType[election_type.upper()]
    with cluster.admin() as admin:
        results = admin.elect_leaders(wanted, kind=kind, return_errors=True)
    elected = [str(key) for key in results]
    output.show(
        {"elected": elected, "errors": reasons(results.errors)},
        lambda: [
            f"Completed leader election ({election_type.upper()}) for {', '.join(elected)}."
            if elected
            else "No leader was elected."
        ],
    )
    fail_if_any(results.errors, "Election of")


def main() -> NoReturn:
    run_tool("kafka-leader-election", kafka_leader_election)
