"""`kafka-console-producer`: lines from the standard input become records.

Options are those of Kafka's tool, the old `--broker-list` included. Deviations: what an option does
not say is the client's default (`linger.ms`, `request.timeout.ms`, `retries`), so that a line typed
is sent at once; a broker that does not answer is given up after 10 seconds; a record that could not
be sent is told and makes the exit code 1."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.tool import Tool, run_tool

EXAMPLES = """
kafka-console-producer --topic orders
kafka-console-producer --topic orders --reader-property parse.key=true --reader-property key.separator=:
kafka-console-producer --topic orders --property parse.headers=true < orders.txt
kafka-console-producer --broker-list broker1:9092 --topic orders --compression-codec zstd
"""  # noqa: E501

_NOT_USED = "Accepted and not used: the system chooses."


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options(
    server_names=("--bootstrap-server", "--broker-list"),
    config_names=("--command-config", "--producer.config"),
)
@click.option("--topic", required=True, help="The topic to write to.")
@click.option("--sync", is_flag=True, help="Wait for each record before reading the next.")
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    metavar="[CODEC]",
    help="none, gzip, snappy, lz4 or zstd; gzip if nothing follows (compression.type).",
)
@click.option(
    "--reader-property",
    "--property",
    "reader_properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="How lines are read: parse.key, key.separator, parse.headers, headers.delimiter, "
    "headers.separator, headers.key.separator, null.marker, ignore.error.",
)
@click.option("--reader-config", metavar="FILE", help="A file of reader properties.")
@click.option(
    "--command-property",
    "--producer-property",
    "client_texts",
    multiple=True,
    metavar="KEY=VALUE",
    help="A property of the producer; may be given again.",
)
@click.option("--request-required-acks", metavar="ACKS", help="all, -1, 1 or 0 (acks).")
@click.option("--batch-size", type=int, metavar="BYTES", help="batch.size.")
@click.option("--max-partition-memory-bytes", type=int, metavar="BYTES", hidden=True)
@click.option("--timeout", type=int, metavar="MS", help="How long a batch waits (linger.ms).")
@click.option("--request-timeout-ms", type=int, metavar="MS", help="request.timeout.ms.")
@click.option("--message-send-max-retries", type=int, metavar="COUNT", help="retries.")
@click.option("--retry-backoff-ms", type=int, metavar="MS", help="retry.backoff.ms.")
@click.option("--max-block-ms", type=int, metavar="MS", help="max.block.ms.  [default: 10000]")
@click.option("--max-memory-bytes", type=int, metavar="BYTES", help="buffer.memory.")
@click.option("--metadata-expiry-ms", type=int, metavar="MS", help="metadata.max.age.ms.")
@click.option("--socket-buffer-size", type=int, hidden=True, help=_NOT_USED)
@click.option("--line-reader", metavar="CLASS", hidden=True)
def kafka_console_producer(cluster: ClusterOptions, topic: str, **options: Any) -> int:
    """Write each line of the standard input to a topic as a record.

    Ctrl-D ends it, or Ctrl-C; what was read is sent before.
    """
    from ottla.cli.console_producer import produce_lines

    return produce_lines(cluster, topic, **options)


def main() -> NoReturn:
    run_tool("kafka-console-producer", kafka_console_producer)
