"""`ottla`: the commands under one name."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.tool import ToolGroup, run_tool

COMMANDS = {
    "broker": "ottla.cli.broker:broker",
    "broker-api-versions": "ottla.cli.kafka_broker_api_versions:kafka_broker_api_versions",
    "cluster": "ottla.cli.cluster:cluster",
    "completion": "ottla.cli.completion:completion",
    "configs": "ottla.cli.kafka_configs:kafka_configs",
    "connect": "ottla.cli.connect:connect",
    "console-consumer": "ottla.cli.kafka_console_consumer:kafka_console_consumer",
    "console-producer": "ottla.cli.kafka_console_producer:kafka_console_producer",
    "consumer-groups": "ottla.cli.kafka_consumer_groups:kafka_consumer_groups",
    "consumer-perf-test": "ottla.cli.kafka_consumer_perf_test:kafka_consumer_perf_test",
    "demo": "ottla.cli.demo.command:demo",
    "delete-records": "ottla.cli.kafka_delete_records:kafka_delete_records",
    "dump-log": "ottla.cli.kafka_dump_log:kafka_dump_log",
    "features": "ottla.cli.kafka_features:kafka_features",
    "get-offsets": "ottla.cli.kafka_get_offsets:kafka_get_offsets",
    "leader-election": "ottla.cli.kafka_leader_election:kafka_leader_election",
    "log-dirs": "ottla.cli.kafka_log_dirs:kafka_log_dirs",
    "producer-perf-test": "ottla.cli.kafka_producer_perf_test:kafka_producer_perf_test",
    "run": "ottla.cli.run:run",
    "sql": "ottla.cli.sql.command:sql",
    "streams-application-reset": (
        "ottla.cli.kafka_streams_application_reset:kafka_streams_application_reset"
    ),
    "reassign-partitions": "ottla.cli.kafka_reassign_partitions:kafka_reassign_partitions",
    "topics": "ottla.cli.kafka_topics:kafka_topics",
    "transactions": "ottla.cli.kafka_transactions:kafka_transactions",
    "version": "ottla.cli.version:version",
    "zookeeper": "ottla.cli.zookeeper:zookeeper",
}
"""Name -> where it is, in the order of the names."""


@click.group(cls=ToolGroup, modules=COMMANDS)
def ottla() -> None:
    """Apache Kafka's broker, protocol, log format and tools, in Python."""


def main() -> NoReturn:
    run_tool("ottla", ottla)
