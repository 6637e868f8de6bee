"""One ZooKeeper and one cluster of three brokers, healthy at the start of each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cluster.cluster_of_processes import ClusterOfProcesses, start_zookeeper

from ottla.base.errors import UserError
from ottla.metadata.zookeeper.ensemble import EnsembleMember


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnsembleMember]:
    try:
        member = start_zookeeper(tmp_path_factory.mktemp("zookeeper"))
    except UserError as error:
        pytest.skip(str(error))
    yield member
    member.kill()


@pytest.fixture(scope="session")
def shared_cluster(
    zookeeper: EnsembleMember, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterOfProcesses]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    cluster = ClusterOfProcesses(directory, f"{zookeeper.connect}/shared")
    try:
        cluster.start()
        yield cluster
        logs = [broker.log() for broker in cluster.brokers.values()]
    finally:
        cluster.close()
    for log in logs:
        assert "Traceback" not in log, log[max(log.index("Traceback") - 2000, 0) :][:6000]


@pytest.fixture
def cluster(shared_cluster: ClusterOfProcesses) -> ClusterOfProcesses:
    shared_cluster.heal()
    return shared_cluster
