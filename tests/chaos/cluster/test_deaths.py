"""Leaders, controllers and ZooKeeper servers that are killed or suspended under load.

The tests print how long a client waits: from the kill to the next acknowledgement."""

from __future__ import annotations

import os
import statistics
import time
from signal import SIGCONT, SIGSTOP

import pytest
from tests.chaos.cluster.conftest import DEFAULT_TIMES, QUICK_TIMES, Ensemble, StartCluster
from tests.integration.cluster.cluster_of_processes import ClusterOfProcesses, wait_for
from tests.integration.cluster.load import Load
from tests.integration.cluster.test_failover import kill_leaders

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

ROUNDS = 50
CONTROLLER_ROUNDS = 10
PAUSE_ROUNDS = 5
OUTAGE_S = 30.0
TIMES = pytest.mark.parametrize("times", [DEFAULT_TIMES, QUICK_TIMES], ids=["2s", "0.5s"])


def report(what: str, times: list[float]) -> None:
    print(f"\n{what}: {len(times)} rounds, median {statistics.median(times):.2f} s, "
          f"worst {max(times):.2f} s")  # fmt: skip


@TIMES
def test_leaders_are_killed(start_cluster: StartCluster, topic: str, times: dict[str, str]) -> None:
    cluster = start_cluster(**times)
    waited = kill_leaders(cluster, topic, ROUNDS)
    report(f"leader killed, lease {times['broker_lease_ms']} ms", waited)


def test_controllers_are_killed(start_cluster: StartCluster, topic: str) -> None:
    cluster = start_cluster(**QUICK_TIMES)
    cluster.create_topic(topic, partitions=3)
    waited = []
    with Load(cluster.bootstrap, topic, partitions=3) as load:
        for _ in range(CONTROLLER_ROUNDS):
            load.next_acknowledgement(0, time.monotonic())
            controller = cluster.controller()
            killed_at = time.monotonic()
            cluster.brokers[controller].kill()
            sent = dict(load.sent)
            waited.append(
                max(load.first_acknowledgement_from(each, sent[each]) for each in sent) - killed_at
            )
            cluster.heal()
    load.assert_all_there(cluster.read_all(topic))
    report("controller killed", waited)


def slowest_acknowledgement(load: Load, for_s: float) -> float:
    """Return the longest time that any partition went without an acknowledgement."""
    until, slowest = time.monotonic() + for_s, 0.0
    while time.monotonic() < until:
        for partition in range(3):
            slowest = max(slowest, load.next_acknowledgement(partition, time.monotonic(), 60.0))
    return slowest


@pytest.mark.parametrize("who", ["follower", "leader"])
def test_a_member_of_zookeeper_is_killed(
    start_cluster: StartCluster, ensemble: Ensemble, topic: str, who: str
) -> None:
    cluster = start_cluster(**DEFAULT_TIMES)
    cluster.create_topic(topic, partitions=3)
    with Load(cluster.bootstrap, topic, partitions=3) as load:
        for _ in range(3):
            load.next_acknowledgement(0, time.monotonic())
            getattr(ensemble, who)().kill()
            slowest = slowest_acknowledgement(load, 5.0)
            print(f"\nZooKeeper's {who} killed: slowest acknowledgement {slowest:.2f} s")
            cluster.create_topic(f"{topic}-{len(load.acknowledged[0])}")
            ensemble.start()
    cluster.heal()
    load.assert_all_there(cluster.read_all(topic))


def test_writing_continues_without_any_zookeeper(
    start_cluster: StartCluster, ensemble: Ensemble, topic: str
) -> None:
    cluster = start_cluster(**DEFAULT_TIMES)
    cluster.create_topic(topic, partitions=3)
    with Load(cluster.bootstrap, topic, partitions=3) as load:
        load.next_acknowledgement(0, time.monotonic())
        ensemble.kill()
        slowest = slowest_acknowledgement(load, OUTAGE_S)
        print(f"\n{OUTAGE_S:g} s without ZooKeeper: slowest acknowledgement {slowest:.2f} s")
        ensemble.start()
        cluster.heal()
        cluster.create_topic(f"{topic}-after")
    load.assert_all_there(cluster.read_all(topic))


@TIMES
def test_leaders_stand_still_for_longer_than_their_session(
    start_cluster: StartCluster, topic: str, times: dict[str, str]
) -> None:
    cluster = start_cluster(**times)
    session_s = int(times["zookeeper_session_timeout_ms"]) / 1000
    cluster.create_topic(topic, partitions=3)
    waited = []
    with Load(cluster.bootstrap, topic, partitions=3, socket_timeout_ms=2_000) as load:
        for _ in range(PAUSE_ROUNDS):
            load.next_acknowledgement(0, time.monotonic())
            leader = cluster.leader(topic)
            stopped_at = time.monotonic()
            os.kill(cluster.brokers[leader].pid, SIGSTOP)
            sent = load.sent[0]
            waited.append(load.first_acknowledgement_from(0, sent) - stopped_at)
            wait_for(lambda old=leader: cluster.leader(topic) != old, "another leader")
            time.sleep(max(0.0, stopped_at + 1.5 * session_s - time.monotonic()))
            os.kill(cluster.brokers[leader].pid, SIGCONT)
            cluster.heal()
    load.assert_all_there(cluster.read_all(topic))
    report(f"leader stopped for {1.5 * session_s:g} s", waited)


@TIMES
def test_a_rolling_restart(start_cluster: StartCluster, topic: str, times: dict[str, str]) -> None:
    cluster = start_cluster(**times)
    cluster.create_topic(topic, partitions=6)
    with Load(cluster.bootstrap, topic, partitions=6) as load:
        for _ in range(3):
            for broker in cluster.brokers.values():
                load.next_acknowledgement(0, time.monotonic())
                assert broker.stop() == 0
                cluster.heal()
    load.assert_all_there(cluster.read_all(topic))
    print(f"\nthree rolling restarts: longest stall {load.longest_stall_s():.2f} s, no failures")


def test_all_brokers_are_killed_again_and_again(start_cluster: StartCluster, topic: str) -> None:
    cluster = start_cluster(**QUICK_TIMES)
    cluster.create_topic(topic, partitions=3)
    with Load(cluster.bootstrap, topic, partitions=3) as load:
        for _ in range(PAUSE_ROUNDS):
            load.next_acknowledgement(0, time.monotonic())
            kill_all(cluster)
            cluster.heal()
    load.assert_all_there(cluster.read_all(topic))


def kill_all(cluster: ClusterOfProcesses) -> None:
    for broker in cluster.brokers.values():
        broker.kill()
