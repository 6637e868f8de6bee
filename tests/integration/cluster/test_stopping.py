"""Shutdown time of a broker in a cluster.

It never exceeds what `controlled.shutdown.timeout.ms` and `zookeeper.session.timeout.ms` allow,
and no acknowledged record is lost."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.integration.cluster.cluster_of_processes import QUICK, ClusterOfProcesses, free_ports
from tests.integration.cluster.load import Load

from ottla.metadata.zookeeper.ensemble import EnsembleMember
from ottla.testing.broker import BrokerProcess

AFTERWARDS_S = 10.0
"""Time that the property's documentation allows for everything but moving the leaderships."""
SESSION_S = int(QUICK["zookeeper.session.timeout.ms"]) / 1000
DRAIN_S = 15.0
"""Default of controlled.shutdown.timeout.ms."""
FEW = {"queue.buffering.max.messages": 1_000}
"""A small queue, to limit the records that wait while no broker is running."""


def stop_all(cluster: ClusterOfProcesses) -> float:
    """Send SIGTERM to all brokers at once, and return the seconds until the last one has ended."""
    brokers = cluster.brokers.values()
    started_at = time.monotonic()
    for broker in brokers:
        broker.send_signal(signal.SIGTERM)
    assert [broker.wait(60) for broker in brokers] == [0] * len(brokers)
    return time.monotonic() - started_at


def marks(cluster: ClusterOfProcesses) -> list[Path]:
    """Return the files that mark a clean shutdown of the cluster's brokers."""
    files = [each.data_dir / ".kafka_cleanshutdown" for each in cluster.brokers.values()]
    return [file for file in files if file.exists()]


def test_brokers_that_all_stop_at_once_do_not_wait_for_each_other(
    cluster: ClusterOfProcesses, topic: str
) -> None:
    cluster.create_topic(topic, partitions=6)
    with Load(cluster.bootstrap, topic, partitions=6, **FEW) as load:
        load.next_acknowledgement(0, time.monotonic())
        assert stop_all(cluster) < DRAIN_S, "nobody waited for a leader that was going, too"
        assert len(marks(cluster)) == 3
        cluster.heal()
    load.assert_all_there(cluster.read_all(topic))


def test_brokers_stop_though_zookeeper_is_gone(
    cluster: ClusterOfProcesses, zookeeper: EnsembleMember
) -> None:
    zookeeper.kill()
    try:
        assert stop_all(cluster) < SESSION_S + AFTERWARDS_S
    finally:
        zookeeper.start()
    assert len(marks(cluster)) == 3, "every log was closed in order"
    zookeeper.wait_until_serving()


def test_a_second_signal_ends_a_broker_at_once(
    cluster: ClusterOfProcesses, zookeeper: EnsembleMember
) -> None:
    broker = cluster.brokers[1]
    zookeeper.signal(signal.SIGSTOP)  # so that the clean shutdown takes seconds
    try:
        broker.send_signal(signal.SIGTERM)
        broker.wait_for_log("stopping: received SIGTERM")
        while broker.is_running:
            broker.send_signal(signal.SIGINT)  # signals in the first second count as one
            time.sleep(0.1)
    finally:
        zookeeper.signal(signal.SIGCONT)
    assert broker.wait() == 128 + signal.SIGINT
    assert "received SIGINT again: stopping immediately" in broker.log()
    assert not (broker.data_dir / ".kafka_cleanshutdown").exists()


def test_a_broker_that_waits_for_zookeeper_to_start_stops_at_once(tmp_path: Path) -> None:
    overrides = {**QUICK, "zookeeper.connect": f"127.0.0.1:{free_ports(1)[0]}", "node.id": "1"}
    overrides["zookeeper.connection.timeout.ms"] = "600000"
    broker = BrokerProcess(tmp_path, overrides=overrides)
    try:
        broker.start(wait=False)
        broker.wait_for_log("Connection refused")
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(AFTERWARDS_S * 3) == 0
        assert "stopped before it was ready" in broker.log()
        assert "Traceback" not in broker.log()
    finally:
        broker.close()
