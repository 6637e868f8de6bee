"""`kafka-consumer-perf-test`: consumer throughput.

Options and output lines are those of Kafka's tool. `--columnar` is Ottla's: it reads records as
Arrow tables."""

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
@click.option("--topic", help="Topic to read.")
@click.option("--include", metavar="REGEX", help="Regular expression of the topics to read.")
@click.option(
    "--num-records",
    "--messages",
    "num_records",
    type=click.IntRange(min=1),
    required=True,
    help="Number of records to read.",
)
@click.option("--group", help="Consumer group to join.  [default: a new group]")
@click.option(
    "--from-latest",
    is_flag=True,
    help="Start with new records instead of the oldest, if the group has no committed offset.",
)
@click.option(
    "--fetch-size",
    type=click.IntRange(min=1),
    default=1_048_576,
    help="Maximum amount of data per partition in a fetch response, in bytes "
    "(max.partition.fetch.bytes).",
)
@click.option("--socket-buffer-size", type=int, hidden=True, help="Accepted and ignored.")
@click.option(
    "--command-property",
    "client_texts",
    multiple=True,
    metavar="KEY=VALUE…",
    help="Consumer property. May be repeated, and one option takes several properties.",
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=click.IntRange(min=0),
    default=10_000,
    help="Maximum time between two records, in milliseconds; the run ends when it is exceeded.",
)
@click.option(
    "--reporting-interval",
    type=click.IntRange(min=1),
    default=5_000,
    help="Interval between progress reports, in milliseconds.",
)
@click.option(
    "--show-detailed-stats", is_flag=True, help="Print a line of statistics for each interval."
)
@click.option("--hide-header", is_flag=True, help="Do not print the column headings.")
@click.option(
    "--date-format",
    default="yyyy-MM-dd HH:mm:ss:SSS",
    metavar="PATTERN",
    help="Format of times, as a pattern of Java's SimpleDateFormat.",
)
@click.option("--print-metrics", is_flag=True, help="Print the client's metrics when the run ends.")
@click.option("--columnar", is_flag=True, help="Read Arrow tables instead of single records.")
@output_option
def kafka_consumer_perf_test(cluster: ClusterOptions, output: Output, **options: Any) -> int:
    """Measure consumer throughput."""
    from ottla.cli.consumer_perf import measure_consumer

    return measure_consumer(cluster, output, **options)


def main() -> NoReturn:
    run_tool("kafka-consumer-perf-test", kafka_consumer_perf_test)
