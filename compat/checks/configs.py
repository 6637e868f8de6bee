"""Checks of kafka-configs."""

from __future__ import annotations

import json

from confluent_kafka.admin import AdminClient

from compat.checks.tools import Tools
from compat.java import TIMEOUT_S


def _topic(name: str) -> tuple[str, ...]:
    return "--entity-type", "topics", "--entity-name", name


def _broker(tools: Tools) -> tuple[str, ...]:
    described = tools.succeed("kafka-log-dirs", "--describe").lines[-1]
    node_id = json.loads(described)["brokers"][0]["broker"]
    return "--entity-type", "brokers", "--entity-name", str(node_id)


def describes_a_topic(tools: Tools) -> None:
    """kafka-configs describes the configs set on a topic, and with --all the effective ones."""
    name = tools.new_topic(retention_ms="123456")
    lines = tools.succeed("kafka-configs", "--describe", *_topic(name)).lines
    assert lines[0] == f"Dynamic configs for topic {name} are:", lines
    (entry,) = lines[1:]
    assert entry.startswith("  retention.ms=123456 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:")
    everything = tools.succeed("kafka-configs", "--describe", "--all", *_topic(name)).lines
    names = {line.strip().partition("=")[0] for line in everything[1:]}
    assert {"segment.bytes", "compression.type", "min.insync.replicas"} <= names, names
    assert len(names) > 30, names
    assert any("DEFAULT_CONFIG:log.segment.bytes=1073741824" in line for line in everything)


def alters_a_topic(tools: Tools) -> None:
    """kafka-configs adds and removes configs of a topic, including lists."""
    name = tools.new_topic(retention_ms="5000000")
    alter = ("kafka-configs", "--alter", *_topic(name))
    tools.succeed(*alter, "--add-config", "max.message.bytes=2000,cleanup.policy=[compact,delete]")
    described = tools.succeed("kafka-configs", "--describe", *_topic(name)).out
    for text in (
        "max.message.bytes=2000 ",
        "cleanup.policy=compact,delete ",
        "retention.ms=5000000 ",
    ):
        assert f"  {text}" in described, described
    tools.succeed(*alter, "--delete-config", "max.message.bytes,cleanup.policy")
    after = tools.succeed("kafka-configs", "--describe", *_topic(name)).lines
    assert [line.split()[0] for line in after[1:]] == ["retention.ms=5000000"], after


def refuses_wrong_values(tools: Tools) -> None:
    """kafka-configs fails for invalid values and unknown names, and nothing changes."""
    name = tools.new_topic()
    alter = ("kafka-configs", "--alter", *_topic(name), "--add-config")
    tools.fail(*alter, "retention.ms=long", saying="InvalidConfigurationException")
    tools.fail(*alter, "cleanup.policy=[burn]", saying="InvalidConfigurationException")
    tools.fail(*alter, "retention.millis=5", saying="InvalidConfigurationException")
    assert len(tools.succeed("kafka-configs", "--describe", *_topic(name)).lines) == 1


def a_change_takes_effect(tools: Tools) -> None:
    """A config changed by kafka-configs takes effect at once."""
    name = tools.new_topic()
    send = (
        *("--topic", name, "--command-property", "retries=0", "--max-block-ms", "10000"),
        *("--sync", "--command-property", "acks=1"),
        *("--command-property", "enable.idempotence=false"),
    )
    tools.succeed("kafka-console-producer", *send, stdin="x" * 500 + "\n")
    tools.succeed(
        "kafka-configs", "--alter", *_topic(name), "--add-config", "max.message.bytes=200"
    )
    refused = tools.run("kafka-console-producer", *send, stdin="x" * 500 + "\n")
    assert "RecordTooLargeException" in refused.all, refused.all
    assert tools.offsets(name) == {0: 1}


def alters_a_broker(tools: Tools) -> None:
    """kafka-configs changes a broker and the default of all brokers, and reverts both."""
    broker = _broker(tools)
    every = ("--entity-type", "brokers", "--entity-default")
    alter, describe = ("kafka-configs", "--alter"), ("kafka-configs", "--describe")
    tools.succeed(*alter, *broker, "--add-config", "log.cleaner.threads=2")
    tools.succeed(*alter, *every, "--add-config", "log.retention.ms=777000")
    try:
        assert "  log.cleaner.threads=2 " in tools.succeed(*describe, *broker).out
        assert "  log.retention.ms=777000 " in tools.succeed(*describe, *every).out
        everything = tools.succeed(*describe, *broker, "--all").out
        assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=777000" in everything, everything
        of_topic = tools.succeed(*describe, "--all", *_topic(tools.new_topic())).out
        assert "  retention.ms=777000 " in of_topic, of_topic
    finally:
        tools.succeed(*alter, *broker, "--delete-config", "log.cleaner.threads")
        tools.succeed(*alter, *every, "--delete-config", "log.retention.ms")
    left = tools.succeed(*describe, "--entity-type", "brokers").out
    assert "777000" not in left, left
    assert "log.cleaner.threads" not in left, left
    tools.fail(*alter, *broker, "--add-config", "broker.id=99", saying="InvalidRequestException")


def alters_a_user(tools: Tools) -> None:
    """kafka-configs sets and deletes passwords of users."""
    user = "compat user"
    alter = ("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", user)
    tools.succeed(*alter, "--add-config", "SCRAM-SHA-512=[iterations=8192,password=secret]")
    admin = AdminClient({"bootstrap.servers": tools.bootstrap})

    def credentials() -> list[tuple[str, int]]:
        found = admin.describe_user_scram_credentials([user])[user].result(TIMEOUT_S)
        return [(each.mechanism.name, each.iterations) for each in found.scram_credential_infos]

    # The tool describes quotas together with users, so it needs brokers that have both.
    assert credentials() == [("SCRAM_SHA_512", 8192)]
    tools.succeed(*alter, "--delete-config", "SCRAM-SHA-512")
    tools.fail(*alter, "--delete-config", "SCRAM-SHA-512", saying="ResourceNotFoundException")


CHECKS = [
    describes_a_topic,
    alters_a_topic,
    refuses_wrong_values,
    a_change_takes_effect,
    alters_a_broker,
    alters_a_user,
]
