"""`kafka-log-dirs`: the brokers' log directories and replicas, as JSON in Kafka's format.

`--json` omits the two lines of text that Kafka's tool prints before the JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.base.types import TopicPartition
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.partial_failure import fail_if_any
from ottla.cli.tool import Tool, action_option, run_tool

if TYPE_CHECKING:
    from ottla.client.admin import Admin, LogDirDescription

EXAMPLES = """
kafka-log-dirs --describe
kafka-log-dirs --describe --broker-list 1,2 --topic-list orders --json
"""


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@action_option("describe", "Describe the log directories.")
@click.option(
    "--broker-list", metavar="1,2,…", help="IDs of the brokers to describe.  [default: all]"
)
@click.option("--topic-list", metavar="A,B,…", help="Topics to include.  [default: all]")
@output_option
def kafka_log_dirs(
    cluster: ClusterOptions,
    output: Output,
    actions: tuple[str, ...],
    broker_list: str | None,
    topic_list: str | None,
) -> None:
    """Describe the brokers' log directories.

    Shows the size and the offset lag of each replica, the disk space, and errors.
    """
    if len(actions) != 1:
        raise click.UsageError("--describe is required.")
    brokers = _brokers(broker_list)
    with cluster.admin() as admin:
        partitions = _partitions(admin, topic_list)
        found = admin.describe_log_dirs(*brokers, partitions=partitions, return_errors=True)
    value = {
        "version": 1,
        "brokers": [
            {"broker": broker, "logDirs": [_as_value(*each) for each in directories.items()]}
            for broker, directories in sorted(found.items())
        ],
    }
    names = ",".join(map(str, sorted(found)))
    output.show(
        value,
        lambda: [
            "Querying brokers for log directories information",
            f"Received log directory information from brokers {names}",
            json.dumps(value, separators=(",", ":")),
        ],
    )
    fail_if_any(found.errors, "Broker")


def _brokers(text: str | None) -> list[int]:
    try:
        return [int(each) for each in text.split(",") if each.strip()] if text else []
    except ValueError:
        raise click.UsageError(f"--broker-list {text!r} must look like 1,2,3.") from None


def _partitions(admin: Admin, text: str | None) -> list[TopicPartition] | None:
    names = [each.strip() for each in (text or "").split(",") if each.strip()]
    if not names:
        return None
    return [
        TopicPartition(topic.name, each.partition)
        for topic in admin.describe_topics(*names).values()
        for each in topic.partitions
    ]


def _as_value(path: str, directory: LogDirDescription) -> Mapping[str, Any]:
    return {
        "logDir": path,
        "error": None if directory.error is None else directory.error.code.name,
        "totalBytes": directory.total_bytes,
        "usableBytes": directory.usable_bytes,
        "partitions": [
            {
                "partition": str(partition),
                "size": replica.size_bytes,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for partition, replica in directory.replicas.items()
        ],
    }


def main() -> NoReturn:
    run_tool("kafka-log-dirs", kafka_log_dirs)
