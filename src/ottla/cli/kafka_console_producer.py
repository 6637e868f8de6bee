"""`kafka-console-producer`: write lines from standard input as records.

Options are those of Kafka's tool, including the old `--broker-list`. Differences from Kafka's tool:

- properties without an option keep the client's defaults (`linger.ms`, `request.timeout.ms`,
  `retries`), so that a typed line is sent immediately
- the tool gives up on an unreachable broker after 10 seconds
- the exit code is 1 if a record could not be sent"""

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

_NOT_USED = "Accepted and ignored: the operating system chooses the buffer size."


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options(
    server_names=("--bootstrap-server", "--broker-list"),
    config_names=("--command-config", "--producer.config"),
)
@click.option("--topic", required=True, help="Topic to write to.")
@click.option(
    "--sync", is_flag=True, help="Wait for each record's acknowledgement before reading the next."
)
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    metavar="[CODEC]",
    help="Compression codec: none, gzip, snappy, lz4 or zstd (compression.type). The option "
    "without a value selects gzip.",
)
@click.option(
    "--reader-property",
    "--property",
    "reader_properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Property that controls how lines are parsed: parse.key, key.separator, parse.headers, "
    "headers.delimiter, headers.separator, headers.key.separator, null.marker or ignore.error. "
    "May be repeated.",
)
@click.option("--reader-config", metavar="FILE", help="Properties file for the line reader.")
@click.option(
    "--command-property",
    "--producer-property",
    "client_texts",
    multiple=True,
    metavar="KEY=VALUE",
    help="Producer property. May be repeated.",
)
@click.option(
    "--request-required-acks",
    metavar="ACKS",
    help="Required acknowledgements: all, -1, 1 or 0 (acks).",
)
@click.option(
    "--batch-size",
    type=int,
    metavar="BYTES",
    help="Maximum size of a record batch, in bytes (batch.size).",
)
@click.option("--max-partition-memory-bytes", type=int, metavar="BYTES", hidden=True)
@click.option(
    "--timeout",
    type=int,
    metavar="MS",
    help="Time that an incomplete batch waits for more records, in milliseconds (linger.ms).",
)
@click.option(
    "--request-timeout-ms",
    type=int,
    metavar="MS",
    help="Time to wait for a response, in milliseconds (request.timeout.ms).",
)
@click.option(
    "--message-send-max-retries",
    type=int,
    metavar="COUNT",
    help="Maximum number of retries of a failed request (retries).",
)
@click.option(
    "--retry-backoff-ms",
    type=int,
    metavar="MS",
    help="Time to wait before a retry, in milliseconds (retry.backoff.ms).",
)
@click.option(
    "--max-block-ms",
    type=int,
    metavar="MS",
    help="Time that a send may block, in milliseconds (max.block.ms).  [default: 10000]",
)
@click.option(
    "--max-memory-bytes",
    type=int,
    metavar="BYTES",
    help="Memory for records that wait to be sent, in bytes (buffer.memory).",
)
@click.option(
    "--metadata-expiry-ms",
    type=int,
    metavar="MS",
    help="Maximum age of cached metadata, in milliseconds (metadata.max.age.ms).",
)
@click.option("--socket-buffer-size", type=int, hidden=True, help=_NOT_USED)
@click.option("--line-reader", metavar="CLASS", hidden=True)
def kafka_console_producer(cluster: ClusterOptions, topic: str, **options: Any) -> int:
    """Write lines from standard input to a topic.

    Each line becomes one record. Ctrl-D or Ctrl-C ends the tool after the records read so far have
    been sent.
    """
    from ottla.cli.console_producer import produce_lines

    return produce_lines(cluster, topic, **options)


def main() -> NoReturn:
    run_tool("kafka-console-producer", kafka_console_producer)
