"""`kafka-producer-perf-test`: how fast a cluster takes records, and with what latency.

Options and lines are those of Kafka's tool. `--columnar` is ours: whole tables go through the Arrow
path, and latencies are those of tables. Payloads are cut from a block of random letters, not made
anew for each record: making them would take longer than sending them."""

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
@click.option("--topic", required=True, help="The topic to write to.")
@click.option("--num-records", type=click.IntRange(min=1), required=True, help="How many records.")
@click.option("--record-size", type=click.IntRange(min=0), metavar="BYTES", help="Of each value.")
@click.option("--payload-file", metavar="FILE", help="Values are chosen from this file's lines.")
@click.option("--payload-delimiter", default="\\n", metavar="REGEX", help="Between its values.")
@click.option("--payload-monotonic", is_flag=True, help="Values are the numbers 0, 1, 2, …")
@click.option(
    "--throughput",
    type=float,
    required=True,
    help="The most records a second; -1 is as many as it can.",
)
@click.option(
    "--command-property",
    "--producer-props",
    "client_texts",
    multiple=True,
    metavar="KEY=VALUE…",
    help="Properties of the producer, several at once if you like.",
)
@click.option("--transactional-id", help="Write in transactions, under this id.")
@click.option(
    "--transaction-duration-ms", type=click.IntRange(min=1), help="How long each of them lasts."
)
@click.option(
    "--warmup-records",
    type=click.IntRange(min=0),
    default=0,
    help="So many at the beginning are left out of a second summary.",
)
@click.option(
    "--reporting-interval", type=click.IntRange(min=1), default=5_000, help="Between reports, ms."
)
@click.option("--print-metrics", is_flag=True, help="Print what the run counted, in the end.")
@click.option("--columnar", is_flag=True, help="Send tables, by the Arrow path (ours).")
@output_option
def kafka_producer_perf_test(cluster: ClusterOptions, output: Output, **options: Any) -> int:
    """Write records as fast as it goes, or as fast as told, and say how fast that was."""
    from ottla.cli.producer_perf import measure_producer

    return measure_producer(cluster, output, **options)


def main() -> NoReturn:
    run_tool("kafka-producer-perf-test", kafka_producer_perf_test)
