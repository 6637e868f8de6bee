"""A cluster without its ZooKeeper, and with two brokers of the same ID."""

from __future__ import annotations

import time
from pathlib import Path

from tests.integration.cluster.cluster_of_processes import (
    ClusterOfProcesses,
    start_zookeeper,
    wait_for,
)
from tests.integration.cluster.load import Load

from ottla.metadata.zookeeper.ensemble import EnsembleMember
from ottla.testing.broker import BrokerProcess

OUTAGE_S = 4.0
"""Longer than the sessions of these brokers, and many times their leases."""


def test_writing_continues_while_all_of_zookeeper_is_away(
    cluster: ClusterOfProcesses, zookeeper: EnsembleMember, topic: str
) -> None:
    cluster.create_topic(topic, partitions=3)
    with Load(cluster.bootstrap, topic, partitions=3) as load:
        load.next_acknowledgement(0, time.monotonic())
        zookeeper.kill()
        until = time.monotonic() + OUTAGE_S
        slowest = 0.0
        while time.monotonic() < until:
            for partition in range(3):
                slowest = max(slowest, load.next_acknowledgement(partition, time.monotonic()))
        zookeeper.start()
        zookeeper.wait_until_serving()
        wait_for(cluster.is_healthy, "a healthy cluster")
    load.assert_all_there(cluster.read_all(topic))
    print("slowest acknowledgement without ZooKeeper, in s:", round(slowest, 2))
    cluster.create_topic(f"{topic}-after")


def test_a_second_broker_with_the_same_id_is_refused(
    cluster: ClusterOfProcesses, tmp_path: Path
) -> None:
    first = cluster.brokers[1]
    second = BrokerProcess(tmp_path / "data", overrides=first.overrides)
    try:
        second.start(wait=False)
        assert second.wait(60) == 1
        assert "Another broker with node.id 1 is running in this cluster" in second.log()
        assert "Traceback" not in second.log()
    finally:
        second.close()
    assert cluster.is_healthy()


def test_brokers_that_start_before_zookeeper_wait_for_it(tmp_path: Path) -> None:
    member = start_zookeeper(tmp_path / "zookeeper")
    member.kill()
    cluster = ClusterOfProcesses(tmp_path, f"{member.connect}/late", count=1)
    try:
        cluster.brokers[1].start(wait=False)
        member.start()
        member.wait_until_serving()
        cluster.brokers[1].wait_until_ready()
    finally:
        cluster.close()
        member.kill()
