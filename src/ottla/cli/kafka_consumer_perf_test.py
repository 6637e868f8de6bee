"""`kafka-consumer-perf-test`: how fast a cluster gives records.

Options and lines are those of Kafka's tool. `--columnar` is ours: records are read as tables."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.property_options import PropertiesTool
from ottla.cli.tool import run_tool

EXAMPLES = """
kafka-consumer-perf-test --topic load --num-records 1000000 --bootstrap-server localhost:9092
kafka-consumer-perf-test --topic load --messages 100000 --show-detailed-stats --reporting-interval 1000
kafka-consumer-perf-test --topic load --num-records 1000000 --columnar
"""  # noqa: E501


@click.command(cls=PropertiesTool, examples=EXAMPLES, several=("--command-property",))
@cluster_options(
    server_names=("--bootstrap-server", "--broker-list"),
    config_names=("--command-config", "--consumer.config"),
)
@click.option("--topic", help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Read all topics that match.")
@click.option(
    "--num-records",
    "--messages",
    "num_records",
    type=click.IntRange(min=1),
    required=True,
    help="How many records.",
)
@click.option("--group", help="The group to read in.  [default: one of its own]")
@click.option("--from-latest", is_flag=True, help="Begin with the next record, not the oldest.")
@click.option(
    "--fetch-size",
    type=click.IntRange(min=1),
    default=1_048_576,
    help="The most of a partition in one answer (max.partition.fetch.bytes).",
)
@click.option("--socket-buffer-size", type=int, hidden=True, help="Accepted and not used.")
@click.option(
    "--command-property",
    "client_texts",
    multiple=True,
    metavar="KEY=VALUE…",
    help="Properties of the consumer, several at once if you like.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(min=0),
    default=10_000,
    help="Give up when no record came for so long, in ms.",
)
@click.option(
    "--reporting-interval", type=click.IntRange(min=1), default=5_000, help="Between reports, ms."
)
@click.option("--show-detailed-stats", is_flag=True, help="A line for each interval.")
@click.option("--hide-header", is_flag=True, help="Leave out the names of the columns.")
@click.option(
    "--date-format",
    default="yyyy-MM-dd HH:mm:ss:SSS",
    metavar="PATTERN",
    help="How times are shown, as in Java's SimpleDateFormat.",
)
@click.option("--print-metrics", is_flag=True, help="Print what the run counted, in the end.")
@click.option("--columnar", is_flag=True, help="Read tables, by the Arrow path (ours).")
@output_option
def kafka_consumer_perf_test(cluster: ClusterOptions, output: Output, **options: Any) -> int:
    """Read records as fast as it goes, and say how fast that was."""
    from ottla.cli.consumer_perf import measure_consumer

    return measure_consumer(cluster, output, **options)


def main() -> NoReturn:
    run_tool("kafka-consumer-perf-test", kafka_consumer_perf_test)
