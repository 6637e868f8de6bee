"""`kafka-console-consumer`: records of topics on the standard output.

Options and output are those of Kafka's tool; `--json` is ours. Deviations: a formatter or a
deserialiser is one of those that are built in; a group of its own is left behind by nobody, as it
commits nothing."""

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
@click.option("--topic", help="The topic to read.")
@click.option("--include", "--whitelist", metavar="REGEX", help="Read all topics that match.")
@click.option("--partition", type=click.IntRange(min=0), help="Read this partition only.")
@click.option("--offset", help="Where to begin in it: a number, earliest or latest.")
@click.option(
    "--from-beginning", is_flag=True, help="Begin with the oldest record, not with the next."
)
@click.option("--group", help="The group to read in; it goes on where it has come to.")
@click.option("--max-messages", type=int, metavar="COUNT", help="End after so many records.")
@click.option("--timeout-ms", type=int, help="End when there was none for so long.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    help="Whether records of open and aborted transactions are shown.",
)
@click.option(
    "--formatter",
    default="DefaultMessageFormatter",
    metavar="CLASS",
    help="How records are shown, by the name of Kafka's class: Default-, Logging-, NoOp-, "
    "Offsets-, GroupMetadata-, TransactionLog-, ShareGroupStateMessageFormatter.",
)
@click.option(
    "--formatter-property",
    "--property",
    "formatter_properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="print.key, print.value, print.timestamp, print.offset, print.partition, print.headers, "
    "print.epoch, key.separator, line.separator, headers.separator, null.literal, "
    "key.deserializer, value.deserializer, headers.deserializer.",
)
@click.option("--formatter-config", metavar="FILE", help="A file of formatter properties.")
@click.option("--key-deserializer", metavar="CLASS", help="Java's class, or its short name.")
@click.option("--value-deserializer", metavar="CLASS", help="string, integer, long, json, …")
@click.option(
    "--command-property",
    "--consumer-property",
    "client_texts",
    multiple=True,
    metavar="KEY=VALUE",
    help="A property of the consumer; may be given again.",
)
@click.option(
    "--skip-message-on-error", is_flag=True, help="A record that cannot be shown is skipped."
)
@click.option("--enable-systest-events", is_flag=True, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print each record as a JSON object.")
def kafka_console_consumer(cluster: ClusterOptions, **options: Any) -> int:
    """Print the records of topics.

    It goes on until Ctrl-C, unless --max-messages or --timeout-ms end it.
    """
    from ottla.cli.console_consumer import consume_to_output

    return consume_to_output(cluster, **options)


def main() -> NoReturn:
    run_tool("kafka-console-consumer", kafka_console_consumer)
