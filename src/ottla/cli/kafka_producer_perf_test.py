"""`kafka-producer-perf-test`: producer throughput and latency.

Options and output lines are those of Kafka's tool. `--columnar` is Ottla's: it sends Arrow tables
and reports the latency of tables. Payloads are slices of one block of random letters, because
generating each payload would take longer than sending it."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.property_options import PropertiesTool
from ottla.cli.tool import run_tool

EXAMPLES = """
kafka-producer-perf-test --topic load --num-records 1000000 --record-size 100 --throughput -1 --bootstrap-server localhost:9092
kafka-producer-perf-test --topic load --num-records 50000 --record-size 1000 --throughput 5000 --producer-props bootstrap.servers=localhost:9092 acks=1 linger.ms=10
kafka-producer-perf-test --topic load --num-records 10000 --payload-file orders.txt --throughput -1 --transaction-duration-ms 1000
"""  # noqa: E501


@click.command(
    cls=PropertiesTool, examples=EXAMPLES, several=("--producer-props", "--command-property")
)
@cluster_options(config_names=("--command-config", "--producer.config"))
@click.option("--topic", required=True, help="Topic to write to.")
@click.option(
    "--num-records", type=click.IntRange(min=1), required=True, help="Number of records to send."
)
@click.option(
    "--record-size",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="Size of each record's value, in bytes.",
)
@click.option(
    "--payload-file", metavar="FILE", help="File of values, from which each record takes one."
)
@click.option(
    "--payload-delimiter",
    default="\\n",
    metavar="REGEX",
    help="Delimiter between the values of the payload file.  [default: newline]",
)
@click.option(
    "--payload-monotonic", is_flag=True, help="Send increasing numbers (0, 1, 2, …) as values."
)
@click.option(
    "--throughput",
    type=float,
    required=True,
    help="Maximum number of records per second, or -1 for no limit.",
)
@click.option(
    "--command-property",
    "--producer-props",
    "client_texts",
    multiple=True,
    metavar="KEY=VALUE…",
    help="Producer property. May be repeated, and one option takes several properties.",
)
@click.option("--transactional-id", help="Send the records in transactions with this ID.")
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(min=1),
    help="Duration of each transaction, in milliseconds; 3000 if omitted.",
)
@click.option(
    "--warmup-records",
    type=click.IntRange(min=0),
    default=0,
    help="Number of records to send first, which a second summary leaves out.",
)
@click.option(
    "--reporting-interval",
    type=click.IntRange(min=1),
    default=5_000,
    help="Interval between progress reports, in milliseconds.",
)
@click.option("--print-metrics", is_flag=True, help="Print the client's metrics when the run ends.")
@click.option("--columnar", is_flag=True, help="Send Arrow tables instead of single records.")
@output_option
def kafka_producer_perf_test(cluster: ClusterOptions, output: Output, **options: Any) -> int:
    """Measure producer throughput and latency."""
    from ottla.cli.producer_perf import measure_producer

    return measure_producer(cluster, output, **options)


def main() -> NoReturn:
    run_tool("kafka-producer-perf-test", kafka_producer_perf_test)
