"""`kafka-console-consumer`: print records of topics to standard output.

Options and output are those of Kafka's tool; `--json` is Ottla's. Differences from Kafka's tool:
only built-in formatters and deserializers are available, and without `--group` the tool commits no
offsets, so that no group remains."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.tool import Tool, run_tool

EXAMPLES = """
kafka-console-consumer --topic orders
kafka-console-consumer --topic orders --from-beginning --max-messages 10
kafka-console-consumer --topic orders --formatter-property print.key=true --formatter-property print.offset=true
kafka-console-consumer --topic orders --partition 2 --offset 1500 --timeout-ms 5000
kafka-console-consumer --include 'orders-.*' --group readers --isolation-level read_committed
kafka-console-consumer --topic __consumer_offsets --from-beginning --formatter OffsetsMessageFormatter
"""  # noqa: E501


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options(config_names=("--command-config", "--consumer.config"))
@click.option("--topic", help="Topic to read.")
@click.option(
    "--include", "--whitelist", metavar="REGEX", help="Regular expression of the topics to read."
)
@click.option(
    "--partition", type=click.IntRange(min=0), help="Partition to read; all partitions if omitted."
)
@click.option(
    "--offset",
    help="Offset to start at: a number, earliest or latest. Requires --partition.  "
    "[default: latest]",
)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Start with the oldest record instead of new records, if the group has no committed "
    "offset.",
)
@click.option(
    "--group",
    help="Consumer group to join. It continues at its committed offsets.  "
    "[default: a new group that does not commit]",
)
@click.option(
    "--max-messages",
    type=int,
    metavar="COUNT",
    help="Number of records to print before exiting.  [default: no limit]",
)
@click.option(
    "--timeout-ms",
    type=int,
    help="Maximum time without a new record before exiting, in milliseconds.  [default: no limit]",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    help="Isolation level: read_committed hides records of open and aborted transactions, "
    "read_uncommitted prints all records.  [default: read_uncommitted]",
)
@click.option(
    "--formatter",
    default="DefaultMessageFormatter",
    metavar="CLASS",
    help="Class name of Kafka's formatter: DefaultMessageFormatter, LoggingMessageFormatter, "
    "NoOpMessageFormatter, OffsetsMessageFormatter, GroupMetadataMessageFormatter, "
    "TransactionLogMessageFormatter or ShareGroupStateMessageFormatter.",
)
@click.option(
    "--formatter-property",
    "--property",
    "formatter_properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Property of the formatter: print.key, print.value, print.timestamp, print.offset, "
    "print.partition, print.headers, print.epoch, key.separator, line.separator, "
    "headers.separator, null.literal, key.deserializer, value.deserializer or "
    "headers.deserializer. May be repeated.",
)
@click.option("--formatter-config", metavar="FILE", help="Properties file for the formatter.")
@click.option(
    "--key-deserializer",
    metavar="CLASS",
    help="Deserializer of keys: a Java class name, or a short name such as string or long.",
)
@click.option(
    "--value-deserializer",
    metavar="CLASS",
    help="Deserializer of values: a Java class name, or a short name such as string or json.",
)
@click.option(
    "--command-property",
    "--consumer-property",
    "client_texts",
    multiple=True,
    metavar="KEY=VALUE",
    help="Consumer property. May be repeated.",
)
@click.option(
    "--skip-message-on-error",
    is_flag=True,
    help="Skip records that cannot be formatted instead of exiting.",
)
@click.option("--enable-systest-events", is_flag=True, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print each record as a JSON object.")
def kafka_console_consumer(cluster: ClusterOptions, **options: Any) -> int:
    """Print records from topics.

    Runs until Ctrl-C, unless --max-messages or --timeout-ms ends it earlier.
    """
    from ottla.cli.console_consumer import consume_to_output

    return consume_to_output(cluster, **options)


def main() -> NoReturn:
    run_tool("kafka-console-consumer", kafka_console_consumer)
