"""Java's administration tools on a cluster of three of our brokers: replicas, leaders, moves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.cluster.cluster_of_processes import ClusterOfProcesses, start_zookeeper

from compat.checks.tools import Tools
from compat.java import TIMEOUT_S, Java

POLL_S = 0.5
RECORDS = 20_000


@dataclass
class ClusterTools(Tools):
    cluster: ClusterOfProcesses | None = None

    @property
    def brokers(self) -> ClusterOfProcesses:
        assert self.cluster is not None
        return self.cluster

    def new_replicated(self, partitions: int = 3) -> str:
        name = f"compat-{next(self._numbers)}"
        self.brokers.create_topic(name, partitions)
        return name

    def plan(self, topic: str, *replicas: list[int]) -> str:
        """Write an assignment to a file, and return its path."""
        partitions = [
            {"topic": topic, "partition": index, "replicas": each}
            for index, each in enumerate(replicas)
        ]
        path = self.scratch / f"{topic}.json"
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return str(path)


@contextmanager
def running_cluster(java: Java, scratch: Path) -> Iterator[ClusterTools]:
    scratch.mkdir()
    zookeeper = start_zookeeper(scratch / "zookeeper")
    cluster = ClusterOfProcesses(scratch, f"{zookeeper.connect}/compat")
    try:
        cluster.start()
        cluster.heal()
        yield ClusterTools(java, cluster.bootstrap, scratch, cluster=cluster)
    finally:
        cluster.close()
        zookeeper.kill()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"timed out while waiting for {what}"
        time.sleep(POLL_S)


def replicas(tools: ClusterTools) -> None:
    """kafka-topics creates and describes replicated topics."""
    tools.succeed(
        "kafka-topics", "--create", "--topic", "replicated", "--partitions", "3",
        "--replication-factor", "3",
    )  # fmt: skip
    output = tools.succeed("kafka-topics", "--describe", "--topic", "replicated").out
    assert "ReplicationFactor: 3" in output, output
    rows = [line for line in output.splitlines() if "Partition: " in line]
    assert len(rows) == 3, output
    leaders = {line.split("Leader: ")[1].split()[0] for line in rows}
    assert leaders == {"1", "2", "3"}, output


def under_replicated(tools: ClusterTools) -> None:
    """kafka-topics finds under-replicated partitions, and none in a healthy cluster."""
    name, cluster = tools.new_replicated(), tools.brokers

    def found(*which: str) -> list[str]:
        lines = tools.succeed("kafka-topics", "--describe", *which).lines
        return [line for line in lines if f"Topic: {name}\t" in line]

    assert found("--under-replicated-partitions") == []
    cluster.brokers[2].kill()
    wait_until(
        lambda: len(found("--under-replicated-partitions")) == 3, "under-replicated partitions"
    )
    assert found("--under-min-isr-partitions") == []
    assert len(found("--at-min-isr-partitions")) == 3
    assert found("--unavailable-partitions") == []
    cluster.heal()
    wait_until(lambda: found("--under-replicated-partitions") == [], "the end of the reassignment")


def moves(tools: ClusterTools) -> None:
    """kafka-reassign-partitions generates a plan, executes it with a throttle, and verifies it."""
    name = f"compat-{next(tools._numbers)}"
    tools.brokers.create_topic(name, 1, replicas=1, min_insync_replicas="1")
    tools.fill(name, RECORDS)
    (tools.scratch / "topics.json").write_text(
        json.dumps({"version": 1, "topics": [{"topic": name}]})
    )
    generated = tools.succeed(
        "kafka-reassign-partitions", "--generate", "--broker-list", "1,2,3",
        "--topics-to-move-json-file", str(tools.scratch / "topics.json"),
    )  # fmt: skip
    assert "Proposed partition reassignment configuration" in generated.out, generated.all
    target = tools.brokers.leader(name) % 3 + 1
    file = ("--reassignment-json-file", tools.plan(name, [target, target % 3 + 1]))
    began = tools.succeed("kafka-reassign-partitions", "--execute", *file, "--throttle", "500000")
    assert "Successfully started partition reassignment" in began.out, began.all
    assert "inter-broker throttle limit was set to 500000 B/s" in began.out, began.all
    wait_until(
        lambda: "is completed" in tools.run("kafka-reassign-partitions", "--verify", *file).out,
        "the end of the reassignment",
    )
    verified = tools.succeed("kafka-reassign-partitions", "--verify", *file)
    assert "Clearing topic-level throttles" in verified.out, verified.all
    output = tools.succeed("kafka-topics", "--describe", "--topic", name).out
    assert f"Replicas: {target},{target % 3 + 1}" in output, output
    assert "throttled" not in output, output
    assert tools.offsets(name) == {0: RECORDS}


def cancelled(tools: ClusterTools) -> None:
    """kafka-reassign-partitions lists and cancels ongoing reassignments."""
    name, cluster = f"compat-{next(tools._numbers)}", tools.brokers
    cluster.create_topic(name, 1, replicas=1, min_insync_replicas="1")
    tools.fill(name, 100, 10_000)
    leader = cluster.leader(name)
    file = ("--reassignment-json-file", tools.plan(name, [leader % 3 + 1]))
    tools.succeed("kafka-reassign-partitions", "--execute", *file, "--throttle", "1")
    listed = tools.succeed("kafka-reassign-partitions", "--list").out
    assert f"{name}-0: replicas:" in listed, listed
    tools.succeed("kafka-reassign-partitions", "--cancel", *file)
    listed = tools.succeed("kafka-reassign-partitions", "--list").out
    assert "No partition reassignments found" in listed, listed
    assert cluster.partitions(name)[0].replicas == (leader,)


def elections(tools: ClusterTools) -> None:
    """kafka-leader-election returns partitions to their preferred leaders."""
    name, cluster = tools.new_replicated(1), tools.brokers
    first = cluster.partitions(name)[0].replicas[0]
    cluster.brokers[first].kill()
    wait_until(lambda: cluster.leader(name) != first, "another leader")
    cluster.heal()
    output = tools.run(
        "kafka-leader-election", "--election-type", "preferred", "--topic", name,
        "--partition", "0",
    )  # fmt: skip
    assert output.code == 0, output.all
    assert "Successfully completed" in output.all or "Valid replica already" in output.all
    wait_until(lambda: cluster.leader(name) == first, "the preferred leader")


CHECKS = [replicas, under_replicated, moves, cancelled, elections]
