"""Fixtures: three ZooKeeper servers for all tests, and a new cluster for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.integration.cluster.cluster_of_processes import ClusterOfProcesses, free_ports

from ottla.base.errors import UserError
from ottla.metadata.zookeeper.ensemble import EnsembleMember, local_addresses

DEFAULT_TIMES = {"broker_lease_ms": "2000", "zookeeper_session_timeout_ms": "6000"}
QUICK_TIMES = {"broker_lease_ms": "500", "zookeeper_session_timeout_ms": "2000"}


class Ensemble:
    def __init__(self, directory: Path, size: int = 3) -> None:
        addresses = local_addresses(size, free_ports(3 * size))
        self.members = [
            EnsembleMember(directory / str(number), number, addresses)
            for number in range(1, size + 1)
        ]

    def start(self) -> None:
        stopped = [member for member in self.members if not member.is_running]
        for member in stopped:
            member.start()
        for member in stopped:
            member.wait_until_serving()

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    @property
    def connect(self) -> str:
        return ",".join(member.connect for member in self.members)

    def leader(self) -> EnsembleMember:
        return next(
            each for each in self.members if "Mode: leader" in each.four_letter_command("srvr")
        )

    def follower(self) -> EnsembleMember:
        return next(
            each for each in self.members if "Mode: follower" in each.four_letter_command("srvr")
        )


@pytest.fixture(scope="session")
def started_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    ensemble = Ensemble(tmp_path_factory.mktemp("ensemble"))
    try:
        ensemble.start()
    except UserError as error:
        ensemble.kill()
        pytest.skip(str(error))
    yield ensemble
    ensemble.kill()


@pytest.fixture
def ensemble(started_ensemble: Ensemble) -> Ensemble:
    started_ensemble.start()
    return started_ensemble


_numbers = count(1)


@pytest.fixture
def topic() -> str:
    """Return a topic name that no other test uses."""
    return f"topic-{next(_numbers)}"


StartCluster = Callable[..., ClusterOfProcesses]


@pytest.fixture
def start_cluster(ensemble: Ensemble, tmp_path: Path, topic: str) -> Iterator[StartCluster]:
    started: list[ClusterOfProcesses] = []

    def start(**overrides: str) -> ClusterOfProcesses:
        cluster = ClusterOfProcesses(tmp_path, f"{ensemble.connect}/{topic}", **overrides)
        started.append(cluster)
        cluster.start()
        cluster.heal()
        return cluster

    yield start
    for cluster in started:
        cluster.close()
