"""Checks of kafka-topics."""

from __future__ import annotations

import re

from compat.checks.tools import Tools


def creates_and_describes(tools: Tools) -> None:
    """kafka-topics creates a topic with partitions and configs, and describes it."""
    output = tools.succeed(
        "kafka-topics",
        *("--create", "--topic", "orders", "--partitions", "3", "--replication-factor", "1"),
        *("--config", "retention.ms=100000", "--config", "cleanup.policy=compact,delete"),
    )
    assert "Created topic orders." in output.out, output.all
    lines = tools.succeed("kafka-topics", "--describe", "--topic", "orders").lines
    assert re.match(
        r"Topic: orders\tTopicId: \S{22}\tPartitionCount: 3\tReplicationFactor: 1\t"
        r"Configs: (?=.*\bretention\.ms=100000\b)(?=.*\bcleanup\.policy=compact,delete\b)",
        lines[0],
    ), lines
    for index, line in enumerate(lines[1:]):
        assert re.match(
            rf"\tTopic: orders\tPartition: {index}\tLeader: (\d+)\tReplicas: \1\tIsr: \1", line
        ), line
    assert len(lines) == 4, lines


def describes_by_id_and_by_state(tools: Tools) -> None:
    """kafka-topics describes by topic ID, and finds nothing unavailable or under-replicated."""
    name = tools.new_topic(2, flush_ms="1234")
    (first, *_) = tools.succeed("kafka-topics", "--describe", "--topic", name).lines
    topic_id = first.split("TopicId: ")[1].split("\t")[0]
    by_id = tools.succeed("kafka-topics", "--describe", "--topic-id", topic_id)
    assert by_id.lines[0] == first, by_id.all
    assert len(by_id.lines) == 3, by_id.all
    for state in ("unavailable", "under-replicated", "under-min-isr"):
        output = tools.succeed("kafka-topics", "--describe", f"--{state}-partitions")
        assert not output.out.strip(), output.all
    changed = tools.succeed("kafka-topics", "--describe", "--topics-with-overrides").out
    assert f"Topic: {name}\t" in changed, changed


def lists(tools: Tools) -> None:
    """kafka-topics lists topics, and those that match a pattern."""
    names = [tools.new_topic() for _ in range(2)]
    assert set(names) <= set(tools.succeed("kafka-topics", "--list").lines)
    matching = tools.succeed("kafka-topics", "--list", "--topic", f"{names[0][:-1]}.*").lines
    assert set(names) <= set(matching), matching
    assert tools.succeed("kafka-topics", "--list", "--topic", names[0]).lines == names[:1]


def refuses_what_cannot_be_created(tools: Tools) -> None:
    """kafka-topics refuses existing and illegal names, too many replicas, and invalid configs."""
    name = tools.new_topic()
    create = ("kafka-topics", "--create", "--topic")
    tools.fail(*create, name, saying=f"Topic '{name}' already exists.")
    tools.succeed(*create, name, "--if-not-exists")
    tools.fail(*create, "no/slash", saying="InvalidTopicException")
    tools.fail(*create, "rf", "--replication-factor", "2", saying="InvalidReplicationFactorExc")
    tools.fail(*create, "none", "--partitions", "0", saying="greater than 0")
    wrong = tools.run(*create, "wrong", "--config", "retention.ms=long")
    assert wrong.code == 1, wrong.all
    assert {"rf", "none", "wrong"}.isdisjoint(tools.succeed("kafka-topics", "--list").lines)


def adds_partitions(tools: Tools) -> None:
    """kafka-topics adds partitions, and refuses to remove any."""
    name = tools.new_topic(2)
    tools.succeed("kafka-topics", "--alter", "--topic", name, "--partitions", "5")
    assert "PartitionCount: 5" in tools.succeed("kafka-topics", "--describe", "--topic", name).out
    tools.fail(
        *("kafka-topics", "--alter", "--topic", name, "--partitions", "4"), saying="InvalidPartiti"
    )
    assert len(tools.offsets(name)) == 5


def deletes(tools: Tools) -> None:
    """kafka-topics deletes a topic; its name can be used again, with another ID."""
    name = tools.new_topic(2)
    tools.fill(name, 100)
    before = tools.succeed("kafka-topics", "--describe", "--topic", name).lines[0]
    tools.succeed("kafka-topics", "--delete", "--topic", name)
    assert name not in tools.succeed("kafka-topics", "--list").lines
    tools.fail("kafka-topics", "--delete", "--topic", name, saying="does not exist")
    tools.succeed("kafka-topics", "--delete", "--topic", name, "--if-exists")
    tools.succeed("kafka-topics", "--create", "--topic", name, "--partitions", "2")
    assert tools.succeed("kafka-topics", "--describe", "--topic", name).lines[0] != before
    assert tools.offsets(name) == {0: 0, 1: 0}


CHECKS = [
    creates_and_describes,
    describes_by_id_and_by_state,
    lists,
    refuses_what_cannot_be_created,
    adds_partitions,
    deletes,
]
