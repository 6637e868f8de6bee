"""Three brokers and ZooKeeper on this machine: the cost of replication, and its reaction times.

All of them share the cores of the machine with the clients, so a second and third copy cost more
here than on separate machines. The figures are:

- throughput and latency with acks=all, for one copy and for three;
- CPU time of followers per gigabyte;
- memory of three idle brokers;
- time from the request for a new topic until every broker knows it;
- with 3,000 partitions on each broker, the latency of records to a few of them, and the time from a
  kill -9 until other brokers lead the partitions of the dead one.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.integration.cluster.cluster_of_processes import (
    ClusterOfProcesses,
    start_zookeeper,
    wait_for,
)

from bench import load
from bench.measure import GB, Figure, cpu_seconds, resident_bytes
from ottla.net.connection import Connection
from ottla.wire import rpc

PARTITIONS = 3
RECORDS = 100_000
BATCH_BYTES = 100_000
SENT = 2_000
CHANGES = 100
MANY = 3_000
TIMEOUT_S = 120.0
DEFAULT_TIMES = {
    "broker_lease_ms": "2000",
    "zookeeper_session_timeout_ms": "6000",
    "replica_lag_time_max_ms": "30000",
}


def run() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        zookeeper = start_zookeeper(Path(directory) / "zookeeper")
        try:
            with _running(Path(directory), zookeeper.connect) as cluster:
                yield from _idle(cluster)
                yield from _copies(cluster)
                yield from _visibility(cluster)
                yield from _broker_loss(cluster)
        finally:
            zookeeper.kill()


@contextmanager
def _running(directory: Path, zookeeper: str) -> Iterator[ClusterOfProcesses]:
    cluster = ClusterOfProcesses(directory, f"{zookeeper}/bench", **DEFAULT_TIMES)
    try:
        cluster.start()
        cluster.heal()
        yield cluster
    finally:
        cluster.close()


def _idle(cluster: ClusterOfProcesses) -> Iterator[Figure]:
    held = [resident_bytes(broker.pid) / 1_000_000 for broker in cluster.brokers.values()]
    yield Figure("memory of three idle brokers", sum(held), "MB")


def _copies(cluster: ClusterOfProcesses) -> Iterator[Figure]:
    rates = {}
    for replicas in (1, 3):
        topic = f"copies-{replicas}"
        cluster.create_topic(topic, PARTITIONS, replicas, min_insync_replicas=str(min(replicas, 2)))
        before = _cpu(cluster)
        began = time.perf_counter()
        load.produce_batches(cluster.bootstrap, topic, PARTITIONS, RECORDS, BATCH_BYTES)
        seconds = time.perf_counter() - began
        size = RECORDS * load.RECORD_BYTES
        rates[replicas] = size / seconds / 1_000_000
        used = (_cpu(cluster) - before) / (size / GB)
        yield Figure(f"acks=all, {replicas} replicas: throughput", rates[replicas], "MB/s")
        yield Figure("… CPU time of all brokers", used, "s/GB")
        times = load.latencies_ms(cluster.bootstrap, topic, PARTITIONS, SENT)
        yield Figure("… produce p50", times[SENT // 2], "ms")
        yield Figure("… produce p99", times[int(SENT * 0.99)], "ms")
    yield Figure("three replicas compared to one", rates[3] / rates[1], "×")
    yield _following(cluster)


def _cpu(cluster: ClusterOfProcesses) -> float:
    return sum(cpu_seconds(broker.pid) for broker in cluster.brokers.values())


def _following(cluster: ClusterOfProcesses) -> Figure:
    """Measure the CPU time of the two brokers that only follow."""
    cluster.create_topic("followed", 1)
    leader = cluster.leader("followed")
    followers = [broker for id, broker in cluster.brokers.items() if id != leader]
    before = sum(cpu_seconds(each.pid) for each in followers)
    load.produce_batches(cluster.bootstrap, "followed", 1, RECORDS, BATCH_BYTES)
    size = 2 * RECORDS * load.RECORD_BYTES
    used = sum(cpu_seconds(each.pid) for each in followers) - before
    return Figure("follower fetching: CPU time", used / (size / GB), "s/GB")


def _visibility(cluster: ClusterOfProcesses) -> Iterator[Figure]:
    times = sorted(asyncio.run(_changes_seen(cluster)))
    yield Figure("a new topic known to every broker, p50", median(times), "ms")
    yield Figure("… p99", times[int(len(times) * 0.99) - 1], "ms", 50.0)


async def _changes_seen(cluster: ClusterOfProcesses) -> list[float]:
    """Return the times from a request for a new topic until the last broker knows it, in ms."""
    connections = {
        id: await Connection.open("127.0.0.1", broker.port)
        for id, broker in cluster.brokers.items()
    }
    controller = connections[cluster.controller()]
    times = []
    for number in range(CHANGES):
        name = f"seen-{number}"
        request = rpc.create_topics(
            topics=[{"name": name, "num_partitions": 1, "replication_factor": 3}],
            timeout_ms=10_000,
        )
        start = time.perf_counter()
        await controller.request(request, TIMEOUT_S)
        for connection in connections.values():
            await _known(connection, name)
        times.append((time.perf_counter() - start) * 1000)
    for connection in connections.values():
        connection.close()
    return times


async def _known(connection: Connection, name: str) -> None:
    request = rpc.metadata(topics=[{"name": name}], allow_auto_topic_creation=False)
    while True:
        response = await connection.request(request, TIMEOUT_S)
        if not response.topics[0].error_code:
            return


def _broker_loss(cluster: ClusterOfProcesses) -> Iterator[Figure]:
    began = time.perf_counter()
    cluster.create_topic("many", MANY)
    wait_for(cluster.is_healthy, "every replica in sync", TIMEOUT_S)
    yield Figure(f"creating {MANY} partitions of three replicas", time.perf_counter() - began, "s")
    times = load.latencies_ms(cluster.bootstrap, "many", PARTITIONS, SENT)
    yield Figure("… produce p50 to a few of them", times[SENT // 2], "ms")
    yield Figure("… p99", times[int(SENT * 0.99)], "ms")
    victim = cluster.leader("many")
    killed = time.perf_counter()
    cluster.brokers[victim].kill()
    wait_for(
        lambda: all(
            each.leader not in (victim, -1) for each in cluster.partitions("many").values()
        ),
        "leaders on other brokers",
        TIMEOUT_S,
    )
    took = time.perf_counter() - killed
    yield Figure(f"recovery from the loss of a broker with 3 × {MANY} partitions", took, "s", 10.0)
    began = time.perf_counter()
    cluster.heal()
    yield Figure(
        "… and its restart, until all replicas are in sync", time.perf_counter() - began, "s"
    )
