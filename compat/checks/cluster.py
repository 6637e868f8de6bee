"""Checks of tools for the broker as a whole."""

from __future__ import annotations

import json
import re

from compat.checks.tools import Tools


def api_versions(tools: Tools) -> None:
    """kafka-broker-api-versions reports every API that we offer as usable."""
    output = tools.succeed("kafka-broker-api-versions").out
    offered = re.findall(r"^\s+(\w+)\(\d+\): (?!UNSUPPORTED)(.*?),?$", output, re.MULTILINE)
    assert len(offered) >= 17, output
    assert all("usable" in versions for _, versions in offered), output
    assert "UNKNOWN(" not in output, output


def cluster_id(tools: Tools) -> None:
    """kafka-cluster reports the cluster ID and the brokers."""
    output = tools.java.succeed("kafka-cluster", "cluster-id", *tools.where).out
    assert re.search(r"Cluster ID: [\w-]{22}\n", output), output
    endpoints = tools.java.succeed("kafka-cluster", "list-endpoints", *tools.where).lines
    host, _, port = tools.bootstrap.partition(":")
    assert re.match(rf"\d+\s+{re.escape(host)}\s+{port}\s+null\s+unfenced\s+broker", endpoints[1])


def log_dirs(tools: Tools) -> None:
    """kafka-log-dirs reports the directory and the size of each partition."""
    name = tools.new_topic(2)
    tools.fill(name, 100, 1_000)
    lines = tools.succeed("kafka-log-dirs", "--describe", "--topic-list", name).lines
    (broker,) = json.loads(lines[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["error"] is None, directory
    sizes = {each["partition"]: each["size"] for each in directory["partitions"]}
    assert sizes.keys() == {f"{name}-0", f"{name}-1"}, sizes
    assert 100_000 < sum(sizes.values()) < 120_000, sizes
    assert not any(each["isFuture"] for each in directory["partitions"])


def producers(tools: Tools) -> None:
    """kafka-transactions describes the producers of a partition."""
    name = tools.new_topic()
    tools.fill(name, 100)
    lines = tools.succeed(
        "kafka-transactions", "describe-producers", "--topic", name, "--partition", "0"
    ).lines
    assert lines[0].split()[:4] == [
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
    ], lines
    (row,) = lines[1:]
    assert row.split()[1:4] == ["0", "-1", "99"], row


CHECKS = [api_versions, cluster_id, log_dirs, producers]
