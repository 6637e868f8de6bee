"""`ottla`: all commands under one name."""

from __future__ import annotations

from typing import NoReturn

import click

from ottla.cli.tool import ToolGroup, run_tool

SECTIONS = {
    "Start and operate": {
        "broker": "ottla.cli.broker:broker",
        "cluster": "ottla.cli.cluster:cluster",
        "secure": "ottla.cli.secure.command:secure",
        "zookeeper": "ottla.cli.zookeeper:zookeeper",
        "zookeeper-acl": ("ottla.cli.zookeeper_security_migration:zookeeper_security_migration"),
        "storage": "ottla.cli.kafka_storage:kafka_storage",
        "configs": "ottla.cli.kafka_configs:kafka_configs",
        "reassign-partitions": "ottla.cli.kafka_reassign_partitions:kafka_reassign_partitions",
        "leader-election": "ottla.cli.kafka_leader_election:kafka_leader_election",
        "log-dirs": "ottla.cli.kafka_log_dirs:kafka_log_dirs",
        "acls": "ottla.cli.kafka_acls:kafka_acls",
        "delegation-tokens": "ottla.cli.kafka_delegation_tokens:kafka_delegation_tokens",
        "features": "ottla.cli.kafka_features:kafka_features",
        "broker-api-versions": "ottla.cli.kafka_broker_api_versions:kafka_broker_api_versions",
    },
    "Topics and records": {
        "topics": "ottla.cli.kafka_topics:kafka_topics",
        "console-producer": "ottla.cli.kafka_console_producer:kafka_console_producer",
        "console-consumer": "ottla.cli.kafka_console_consumer:kafka_console_consumer",
        "sql": "ottla.cli.sql.command:sql",
        "get-offsets": "ottla.cli.kafka_get_offsets:kafka_get_offsets",
        "delete-records": "ottla.cli.kafka_delete_records:kafka_delete_records",
        "dump-log": "ottla.cli.kafka_dump_log:kafka_dump_log",
    },
    "Groups and transactions": {
        "consumer-groups": "ottla.cli.kafka_consumer_groups:kafka_consumer_groups",
        "transactions": "ottla.cli.kafka_transactions:kafka_transactions",
    },
    "Pipelines": {
        "connect": "ottla.cli.connect:connect",
        "run": "ottla.cli.run:run",
        "streams-application-reset": (
            "ottla.cli.kafka_streams_application_reset:kafka_streams_application_reset"
        ),
    },
    "Development": {
        "demo": "ottla.cli.demo.command:demo",
        "producer-perf-test": "ottla.cli.kafka_producer_perf_test:kafka_producer_perf_test",
        "consumer-perf-test": "ottla.cli.kafka_consumer_perf_test:kafka_consumer_perf_test",
        "completion": "ottla.cli.completion:completion",
        "version": "ottla.cli.version:version",
    },
}
"""Headings of `ottla --help`, each with its commands and where they are implemented."""
COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}


@click.group(cls=ToolGroup, modules=COMMANDS, sections=SECTIONS)
def ottla() -> None:
    """Apache Kafka's broker, protocol, log format and tools, in Python."""


def main() -> NoReturn:
    run_tool("ottla", ottla)
