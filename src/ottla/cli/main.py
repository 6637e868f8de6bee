"""`ottla`: the commands under one name."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.tool import ToolGroup, run_tool

COMMANDS = {
    "broker": "ottla.cli.broker:broker",
    "console-consumer": "ottla.cli.kafka_console_consumer:kafka_console_consumer",
    "console-producer": "ottla.cli.kafka_console_producer:kafka_console_producer",
    "consumer-perf-test": "ottla.cli.kafka_consumer_perf_test:kafka_consumer_perf_test",
    "dump-log": "ottla.cli.kafka_dump_log:kafka_dump_log",
    "producer-perf-test": "ottla.cli.kafka_producer_perf_test:kafka_producer_perf_test",
    "topics": "ottla.cli.kafka_topics:kafka_topics",
    "version": "ottla.cli.version:version",
}
"""Name -> where it is, in the order of the names."""


@click.group(cls=ToolGroup, modules=COMMANDS)
def ottla() -> None:
    """Apache Kafka's broker, protocol, log format and tools, in Python."""


def main() -> NoReturn:
    run_tool("ottla", ottla)
