"""Network links between real processes that fail in one direction or in both.

No acknowledged record is lost, and every partition that can have a leader keeps or gets one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.chaos.cluster.conftest import QUICK_TIMES
from tests.chaos.cluster.namespaces import (
    HOST_ADDRESS,
    NamespacedBroker,
    Namespaces,
    address,
    are_available,
)
from tests.integration.cluster.cluster_of_processes import (
    ClusterOfProcesses,
    free_ports,
    wait_for,
)
from tests.integration.cluster.load import Load

from ottla.base.errors import UserError
from ottla.metadata.zookeeper.ensemble import EnsembleMember, local_addresses
from ottla.testing.broker import BrokerProcess

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

BROKERS = (1, 2, 3)
NO_LEADER_BUT_IT = ("the leader from its followers", "the leader from its followers, one way")
"""Cuts during which no acknowledgement is expected.

The leader keeps its lease, so no other replica is elected, but it cannot reach enough in-sync
replicas for acks=all."""
HELD_S = 8.0
"""Seconds that a link stays cut: several session timeouts of these brokers."""


class ClusterOfNamespaces(ClusterOfProcesses):
    def add(self, id: int, **overrides: str) -> BrokerProcess:
        config = {**self._overrides, "zookeeper.connect": self.zookeeper, "node.id": str(id)}
        config |= {key.replace("_", "."): value for key, value in overrides.items()}
        broker = NamespacedBroker(id, self.directory / f"broker-{id}", config)
        self.brokers[id] = broker
        return broker


@pytest.fixture
def namespaces() -> Iterator[Namespaces]:
    if not are_available():
        pytest.skip("network namespaces need root and ip")
    created = Namespaces(len(BROKERS))
    yield created
    created.close()


@pytest.fixture
def cluster(namespaces: Namespaces, tmp_path: Path) -> Iterator[ClusterOfNamespaces]:
    member = EnsembleMember(
        tmp_path / "zookeeper", 1, local_addresses(1, free_ports(3), HOST_ADDRESS)
    )
    try:
        member.start()
        member.wait_until_serving()
    except UserError as error:
        pytest.skip(str(error))
    cluster = ClusterOfNamespaces(tmp_path, f"{member.connect}/cuts", **QUICK_TIMES)
    try:
        cluster.start()
        cluster.heal()
        yield cluster
    finally:
        cluster.close()
        member.kill()


def cuts(leader: int) -> dict[str, list[tuple[int, str]]]:
    """Return the links to cut in each scenario, as (sending broker, target address)."""
    others = [each for each in BROKERS if each != leader]
    peers = [(leader, address(each)) for each in others]
    back = [(each, address(leader)) for each in others]
    return {
        "the leader from a follower": [peers[0], back[0]],
        "a follower from the leader, one way": [back[0]],
        "the leader from a follower, one way": [peers[0]],
        "the leader from its followers": [*peers, *back],
        "the leader from its followers, one way": peers,
        "the leader from ZooKeeper, and the client": [(leader, HOST_ADDRESS)],
        "the leader from everybody": [*peers, *back, (leader, HOST_ADDRESS)],
    }


@pytest.mark.parametrize("what", list(cuts(1)))
def test_nothing_is_lost_when_links_are_cut(
    cluster: ClusterOfNamespaces, namespaces: Namespaces, topic: str, what: str
) -> None:
    cluster.create_topic(topic, partitions=3)
    with Load(cluster.bootstrap, topic, partitions=3, socket_timeout_ms=2_000) as load:
        load.next_acknowledgement(0, time.monotonic())
        leader = cluster.leader(topic)
        cut_at = time.monotonic()
        for number, target in cuts(leader)[what]:
            namespaces.cut(number, target)
        if what not in NO_LEADER_BUT_IT:
            # Acknowledgements from before the cut may still be in flight.
            waited = load.next_acknowledgement(0, cut_at + 0.5, 60.0)
            print(f"\n{what}: {waited + 0.5:.2f} s to an acknowledgement")
        time.sleep(max(0.0, cut_at + HELD_S - time.monotonic()))
        namespaces.heal()
        wait_for(cluster.is_healthy, "a healthy cluster", 60.0)
        load.next_acknowledgement(0, time.monotonic(), 60.0)
    print(f"\n{what}: longest stall {load.longest_stall_s():.2f} s")
    load.assert_all_there(cluster.read_all(topic))
