"""`kafka-get-offsets`: offsets of partitions by position (earliest, latest, …) or by time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

import click

from ottla.base.errors import UserError
from ottla.base.types import TopicPartition
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.partial_failure import fail_if_any, reasons
from ottla.cli.tool import Tool, run_tool
from ottla.cli.topic_patterns import compile_pattern

POSITIONS = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
}
EXAMPLES = """
kafka-get-offsets --topic orders
kafka-get-offsets --topic 'orders.*' --time earliest
kafka-get-offsets --topic orders --partitions 0,1 --time 1700000000000
kafka-get-offsets --topic-partitions orders:0,prices:2-4
"""

_PARTITIONS = re.compile(r"(?P<one>\d+)|(?P<low>\d*)-(?P<high>\d*)")
Filter = Callable[[TopicPartition], bool]


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options(server_names=("--bootstrap-server", "--broker-list"))
@click.option(
    "--topic",
    metavar="NAME",
    help="Regular expression that the topic names must match.  [default: all]",
)
@click.option("--partitions", metavar="0,1,…", help="Partitions to include.  [default: all]")
@click.option(
    "--topic-partitions",
    metavar="TOPIC:PARTITIONS,…",
    help="Topics with partitions or ranges of them: t:0, t:1-3 (3 excluded), t:2- or t:-3.",
)
@click.option(
    "--time",
    "moment",
    default="latest",
    show_default=True,
    metavar="TIME",
    help=f"Offset to show: {', '.join(POSITIONS)}, or that of the first record at or after a "
    "timestamp in milliseconds.",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Exclude internal topics.")
@output_option
def kafka_get_offsets(
    cluster: ClusterOptions,
    output: Output,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    moment: str,
    exclude_internal_topics: bool,
) -> None:
    """Show the offsets of topic partitions.

    Prints one line topic:partition:offset for each partition. Partitions without a matching offset
    are omitted.
    """
    if topic_partitions and (topic or partitions):
        raise click.UsageError(
            "--topic-partitions cannot be combined with --topic or --partitions."
        )
    spec = parse_time(moment)
    wanted = (
        parse_topic_partitions(topic_partitions)
        if topic_partitions
        else _by_topic(topic, partitions)
    )
    with cluster.admin() as admin:
        names = admin.list_topics(include_internal=not exclude_internal_topics)
        topics = admin.describe_topics(*names, return_errors=True)
        found = [
            TopicPartition(each.name, partition.partition)
            for each in topics.values()
            for partition in each.partitions
        ]
        chosen = sorted(filter(wanted, found))
        if not chosen:
            raise UserError("Could not match any topic-partitions with the specified filters.")
        results = admin.list_offsets(dict.fromkeys(chosen, spec), return_errors=True)
    offsets = {
        partition: each.offset for partition, each in results.items() if each.offset is not None
    }
    output.show(
        {
            "offsets": [
                {"topic": name, "partition": number, "offset": offset}
                for (name, number), offset in offsets.items()
            ],
            "errors": reasons(results.errors),
        },
        lambda: [f"{name}:{number}:{offset}" for (name, number), offset in offsets.items()],
    )
    fail_if_any(results.errors, "Partition")


def parse_time(text: str) -> int:
    if text in POSITIONS:
        return POSITIONS[text]
    try:
        number = int(text)
    except ValueError:
        number = min(POSITIONS.values()) - 1
    if number < min(POSITIONS.values()):
        raise click.UsageError(
            f"--time {text!r} is neither a timestamp in milliseconds nor one of "
            f"{', '.join(POSITIONS)} (-1 to -5)."
        )
    return number


def _by_topic(topic: str | None, partitions: str | None) -> Filter:
    pattern = compile_pattern(topic) if topic else None
    try:
        numbers = {int(each) for each in partitions.split(",") if each} if partitions else None
    except ValueError:
        raise click.UsageError(f"--partitions {partitions!r} must look like 0,1,2.") from None

    def matches(partition: TopicPartition) -> bool:
        return (pattern is None or pattern.fullmatch(partition.topic) is not None) and (
            numbers is None or partition.partition in numbers
        )

    return matches


def parse_topic_partitions(text: str) -> Filter:
    """Parse `topic`, `topic:3`, `topic:1-3`, `topic:1-` or `topic:-3`; upper ends are exclusive."""
    filters: list[tuple[re.Pattern[str], int, float]] = []
    for each in text.split(","):
        topic, _, partitions = each.strip().partition(":")
        low: int = 0
        high: float = float("inf")
        if partitions:
            found = _PARTITIONS.fullmatch(partitions)
            if found is None:
                raise click.UsageError(f"--topic-partitions: {each!r} must look like topic:0-3.")
            if found["one"]:
                low, high = int(found["one"]), int(found["one"]) + 1
            else:
                low = int(found["low"] or 0)
                high = int(found["high"]) if found["high"] else high
        filters.append((compile_pattern(topic or ".*"), low, high))

    def matches(partition: TopicPartition) -> bool:
        return any(
            pattern.fullmatch(partition.topic) and low <= partition.partition < high
            for pattern, low, high in filters
        )

    return matches


def main() -> NoReturn:
    run_tool("kafka-get-offsets", kafka_get_offsets)
