"""`kafka-topics` against a broker."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.integration.cli.running import Fail, Run, running_on

from ottla.testing.broker import BrokerProcess, _environment


def test_create_list_describe_delete_as_people_script_on_them(succeed: Run, topic: str) -> None:
    options = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=1000")
    created = succeed("topics", "--create", "--topic", topic, *options)
    assert created.out == f"Created topic {topic}.\n"
    assert topic in succeed("topics", "--list").lines
    first, *partitions = succeed("topics", "--describe", "--topic", topic).lines
    assert re.fullmatch(
        rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 2\tReplicationFactor: 1\t"
        r"Configs: retention.ms=1000",
        first,
    )
    assert partitions == [
        f"\tTopic: {topic}\tPartition: {number}\tLeader: 1\tReplicas: 1\tIsr: 1"
        "\tElr: \tLastKnownElr: "
        for number in range(2)
    ]
    assert succeed("topics", "--delete", "--topic", topic).out == ""
    assert topic not in succeed("topics", "--list").lines


def test_json_has_the_same(succeed: Run, topic: str) -> None:
    created = succeed("topics", "--create", "--topic", topic, "--partitions", "3", "--json").json
    assert (created["topic"], created["created"], created["partitions"]) == (topic, True, 3)
    (described,) = succeed("topics", "--describe", "--topic", topic, "--json").json
    assert described["topic_id"] == created["topic_id"]
    assert [each["leader"] for each in described["partitions"]] == [1, 1, 1]
    assert topic in succeed("topics", "--list", "--json").json
    assert succeed("topics", "--delete", "--topic", topic, "--json").json == {
        "deleted": [topic],
        "errors": {},
    }


def test_a_topic_that_exists_or_does_not_is_a_failure_unless_an_option_allows_it(
    succeed: Run, fail: Fail, topic: str
) -> None:
    missing = fail("topics", "--describe", "--topic", topic)
    assert missing == f"Topic '{topic}' does not exist as expected.\n"
    fail("topics", "--delete", "--topic", topic)
    for action in (["--delete"], ["--describe"], ["--alter", "--partitions", "2"]):
        succeed("topics", *action, "--topic", topic, "--if-exists")
    succeed("topics", "--create", "--topic", topic)
    assert fail("topics", "--create", "--topic", topic) == f"Topic '{topic}' already exists.\n"
    assert succeed("topics", "--create", "--topic", topic, "--if-not-exists").out == ""


def test_alter_adds_partitions_and_changes_properties(succeed: Run, fail: Fail, topic: str) -> None:
    succeed("topics", "--create", "--topic", topic, "--config", "flush.ms=5")
    succeed("topics", "--alter", "--topic", topic, "--partitions", "3")
    changes = ("--config", "retention.ms=7", "--delete-config", "flush.ms")
    succeed("topics", "--alter", "--topic", topic, *changes)
    (described,) = succeed("topics", "--describe", "--topic", topic, "--json").json
    assert described["partition_count"] == 3
    assert described["configs"] == {"retention.ms": "7"}
    assert "not be an increase" in fail("topics", "--alter", "--topic", topic, "--partitions", "2")


def test_topics_are_chosen_by_regular_expression(succeed: Run, topic: str) -> None:
    names = [f"{topic}.{letter}" for letter in "abc"]
    for name in names:
        succeed("topics", "--create", "--topic", name)
    assert succeed("topics", "--list", "--topic", rf"{topic}\.[ab]").lines == names[:2]
    assert succeed("topics", "--list", "--topic", f"{names[0]},{names[2]}").lines == [
        names[0],
        names[2],
    ]
    succeed("topics", "--delete", "--topic", rf"{topic}\..*")
    assert succeed("topics", "--list", "--topic", rf"{topic}.*").lines == []


def test_describe_by_id_by_state_and_by_overrides(succeed: Run, fail: Fail, topic: str) -> None:
    succeed("topics", "--create", "--topic", topic, "--config", "flush.ms=1")
    (described,) = succeed("topics", "--describe", "--topic", topic, "--json").json
    by_id = succeed("topics", "--describe", "--topic-id", described["topic_id"])
    assert by_id.lines[0] == succeed("topics", "--describe", "--topic", topic).lines[0]
    assert len(by_id.lines) == 2
    fail("topics", "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ")
    for state in ("under-replicated", "unavailable", "under-min-isr"):
        # Other tests may have left topics in such a state on this broker.
        assert topic not in succeed("topics", "--describe", f"--{state}-partitions").out
    at_min = succeed("topics", "--describe", "--at-min-isr-partitions").lines
    assert any(f"Topic: {topic}\tPartition: 0" in line for line in at_min)
    overridden = succeed("topics", "--describe", "--topics-with-overrides").lines
    assert any(f"Topic: {topic}\t" in line for line in overridden)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--create", "--topic", "no/slash"], "illegal"),
        (["--create", "--topic", "x", "--replication-factor", "2"], "replication factor"),
        (["--create", "--topic", "x", "--config", "retention.ms=long"], "retention.ms"),
        (["--create", "--topic", "x", "--partitions", "0"], "greater than 0"),
        (["--create", "--topic", "x", "--config", "novalue"], "name=value"),
        (["--create", "--topic", "x", "--replica-assignment", "a:b"], "must look like"),
        (["--create", "--topic", "x", "--replica-assignment", "1:1"], "twice"),
        (["--create"], "--create requires --topic"),
        (["--list", "--create"], "exactly one"),
        ([], "exactly one"),
        (["--list", "--partitions", "3"], "--partitions can only be used with --create or --alter"),
        (["--describe", "--topic", "["], "not a valid regular expression"),
        (["--describe", "--topic-id", "short"], "not a valid topic ID"),
        (["--zookeeper", "localhost:2181", "--list"], "--bootstrap-server"),
        (["--alter", "--topic", "x"], "--alter requires --partitions"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    fail: Fail, arguments: list[str], message: str
) -> None:
    assert message in fail("topics", *arguments)


def test_a_replica_assignment_places_partitions(succeed: Run, topic: str) -> None:
    succeed("topics", "--create", "--topic", topic, "--replica-assignment", "1,1,1")
    succeed(
        *("topics", "--alter", "--topic", topic),
        *("--partitions", "5", "--replica-assignment", "1,1,1,1,1"),
    )
    (described,) = succeed("topics", "--describe", "--topic", topic, "--json").json
    assert described["partition_count"] == 5


def test_the_tool_is_a_program_of_its_own(broker: BrokerProcess, topic: str) -> None:
    script = "from ottla.cli.kafka_topics import main; main()"
    arguments = ["--create", "--bootstrap-server", broker.bootstrap, "--replication-factor", "1"]
    arguments += ["--partitions", "1", "--topic", topic]
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        env=_environment(),
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, f"Created topic {topic}.\n"), ran.stderr


def test_brokers_that_cannot_be_reached_are_named(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=300\n")
    start = time.monotonic()
    ran = running_on("127.0.0.1:1")("topics", "--list", "--command-config", str(config))
    assert time.monotonic() - start < 5
    assert ran.code == 1
    assert "127.0.0.1:1" in ran.err
