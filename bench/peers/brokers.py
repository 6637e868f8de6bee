"""Both kinds of brokers, one or three of them, behind a common interface.

Apache Kafka is started as by its own script: G1 with Kafka's flags, a heap of 1 GB, and a
server.properties with nothing but identity and addresses. Ours is started with its defaults, too. A
cluster of ours has a ZooKeeper, whose CPU time and memory count as ours.
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from compat.certificates import Certificates
from compat.java import Java

from bench.measure import cpu_seconds, resident_bytes
from compat import jars
from ottla.metadata.zookeeper.ensemble import EnsembleMember, local_addresses
from ottla.testing.broker import BrokerProcess

HOST = "127.0.0.1"
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0
POLL_S = 0.01
KAFKA_JVM = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}
_STARTED = re.compile(r"Kafka Server started")


class Peer(Protocol):
    """Broker, or cluster of brokers."""

    name: str
    is_ours: bool
    ports: dict[int, int]
    """Ports by node ID."""
    tls_ports: dict[int, int]
    """Ports of the TLS listeners by node ID; empty if there are none."""

    @property
    def bootstrap(self) -> str: ...

    def pids(self) -> list[int]: ...

    def start(self, *, wait: bool = True) -> None:
        """Start the nodes that are not running."""

    def stop(self) -> None: ...

    def kill(self, node: int | None = None) -> None:
        """Kill one node, or all."""

    def close(self) -> None: ...


def cpu_of(peer: Peer) -> float:
    return sum(map(cpu_seconds, peer.pids()))


def megabytes_of(peer: Peer) -> float:
    return sum(map(resident_bytes, peer.pids())) / 1_000_000


class Ottla:
    is_ours = True

    def __init__(
        self, home: Path, nodes: int = 1, certificates: Certificates | None = None
    ) -> None:
        import ottla

        self.name = f"Ottla {ottla.__version__}"
        self.ports = dict(zip(range(1, nodes + 1), free_ports(nodes), strict=True))
        self.tls_ports = dict(zip(self.ports, free_ports(nodes), strict=True))
        self._certificates = certificates
        if certificates is None:
            self.tls_ports.clear()
        self._zookeeper = None
        if nodes > 1:
            members = local_addresses(1, free_ports(3))
            self._zookeeper = EnsembleMember(home / "zookeeper", 1, members)
        self._brokers = {
            id: BrokerProcess(home / f"ottla-{id}", port=port, overrides=self._overrides(id))
            for id, port in self.ports.items()
        }

    def _overrides(self, id: int) -> dict[str, str]:
        secured: dict[str, str] = {}
        if self._certificates is not None:
            listeners = tls_listeners(self.ports[id], self.tls_ports[id])
            secured = {"listeners": listeners, **self._certificates.broker_properties()}
        if self._zookeeper is None:
            return secured
        return {
            **REPLICATED,
            **secured,
            "node.id": str(id),
            "zookeeper.connect": f"{self._zookeeper.connect}/bench",
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def pids(self) -> list[int]:
        pids = [each.pid for each in self._brokers.values() if each.is_running]
        return pids if self._zookeeper is None else [*pids, self._zookeeper.pid]

    def start(self, *, wait: bool = True) -> None:
        if self._zookeeper is not None and not self._zookeeper.is_running:
            self._zookeeper.start()
            self._zookeeper.wait_until_serving()
        stopped = [each for each in self._brokers.values() if not each.is_running]
        for broker in stopped:
            broker.start(wait=False)
        if wait:
            for broker in stopped:
                broker.wait_until_ready(START_TIMEOUT_S)

    def stop(self) -> None:
        for broker in self._brokers.values():
            if broker.is_running:
                broker.stop(STOP_TIMEOUT_S)

    def kill(self, node: int | None = None) -> None:
        for id, broker in self._brokers.items():
            if node in (None, id) and broker.is_running:
                broker.kill()

    def close(self) -> None:
        self.kill()
        for broker in self._brokers.values():
            broker.close()
        if self._zookeeper is not None:
            self._zookeeper.kill()


class _KafkaNode:
    def __init__(
        self,
        java: Java,
        home: Path,
        id: int,
        listeners: str,
        voters: Sequence[tuple[int, int]],
        more: Mapping[str, str],
    ) -> None:
        self._java = java
        self._home = home
        self._id = id
        self._voters = voters
        self._log = home / "kafka.log"
        self.process: subprocess.Popen[bytes] | None = None
        controller_port = dict(voters)[id]
        home.mkdir(parents=True)
        self._properties = home / "server.properties"
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(id),
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "controller.quorum.voters": ",".join(f"{each}@{HOST}:{at}" for each, at in voters),
            "log.dirs": str(home / "data"),
            **more,
            **(
                REPLICATED
                if len(voters) > 1
                else {
                    "offsets.topic.replication.factor": "1",
                    "transaction.state.log.replication.factor": "1",
                    "transaction.state.log.min.isr": "1",
                }
            ),
        }
        self._properties.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))

    def format(self, cluster_id: str) -> None:
        self._java.succeed(
            "kafka-storage",
            *("format", "--cluster-id", cluster_id, "--config", str(self._properties)),
        )

    def start(self) -> None:
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(self._java.command, *KAFKA_JVM),
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
                    *("-cp", self._java.class_path, "kafka.Kafka", str(self._properties)),
                ],
                stdout=log,
                stderr=log,
            )

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def wait_until_started(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while _STARTED.search(self._log.read_text(errors="replace")) is None:
            if not self.is_running or time.monotonic() > deadline:
                output = self._log.read_text(errors="replace")[-4_000:]
                raise RuntimeError(f"Apache Kafka did not start:\n{output}")
            time.sleep(POLL_S)

    def end(self, number: signal.Signals) -> None:
        if self.process is None or not self.is_running:
            return
        self.process.send_signal(number)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Kafka:
    is_ours = False

    def __init__(
        self, home: Path, nodes: int = 1, certificates: Certificates | None = None
    ) -> None:
        directory = jars.directory()
        java = Java(jars.java_command(), str(directory / "*"), directory / "classes.jsa")
        java.make_archive()
        self.name = f"Apache {directory.name.replace('kafka-', 'Kafka ')}"
        self.ports = dict(zip(range(1, nodes + 1), free_ports(nodes), strict=True))
        self.tls_ports = dict(zip(self.ports, free_ports(nodes), strict=True))
        more = {} if certificates is None else certificates.broker_properties()
        if certificates is None:
            self.tls_ports.clear()
        voters = list(zip(self.ports, free_ports(nodes), strict=True))
        self._nodes = {}
        for id, port in self.ports.items():
            listeners = tls_listeners(port, self.tls_ports.get(id))
            self._nodes[id] = _KafkaNode(java, home / f"kafka-{id}", id, listeners, voters, more)
        cluster_id = java.succeed("kafka-storage", "random-uuid").out.strip()
        for node in self._nodes.values():
            node.format(cluster_id)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def pids(self) -> list[int]:
        return [
            node.process.pid
            for node in self._nodes.values()
            if node.process is not None and node.is_running
        ]

    def start(self, *, wait: bool = True) -> None:
        stopped = [node for node in self._nodes.values() if not node.is_running]
        for node in stopped:
            node.start()
        if wait:
            for node in stopped:
                node.wait_until_started()

    def stop(self) -> None:
        for node in self._nodes.values():
            if node.is_running and node.process is not None:
                node.process.send_signal(signal.SIGTERM)
        for node in self._nodes.values():
            node.end(signal.SIGTERM)

    def kill(self, node: int | None = None) -> None:
        for id, each in self._nodes.items():
            if node in (None, id):
                each.end(signal.SIGKILL)

    def close(self) -> None:
        self.kill()


def tls_listeners(port: int, tls_port: int | None) -> str:
    """Return the value of `listeners`: plain text, and TLS if there is a port for it."""
    plain = f"PLAINTEXT://{HOST}:{port}"
    return plain if tls_port is None else f"{plain},SSL://{HOST}:{tls_port}"


@contextmanager
def both(
    nodes: int = 1, *, start: bool = True, certificates: Certificates | None = None
) -> Iterator[tuple[Ottla, Kafka]]:
    """Provide one peer of each kind, in a temporary directory.

    Args:
        nodes: Brokers of each peer.
        start: Start the brokers.
        certificates: Certificates of additional TLS listeners; None for no such listeners.
    """
    home = Path(tempfile.mkdtemp(prefix="ottla-peers-"))
    peers: list[Ottla | Kafka] = []
    try:
        ours, theirs = Ottla(home, nodes, certificates), Kafka(home, nodes, certificates)
        peers += [ours, theirs]
        if start:
            ours.start()
            theirs.start()
        yield ours, theirs
    finally:
        for peer in peers:
            peer.close()
        shutil.rmtree(home, ignore_errors=True)


def alternating(peers: Sequence[Peer], rounds: int) -> Iterator[tuple[int, Peer]]:
    """Yield the peers for each round, alternating which comes first. Round 0 is a warm-up."""
    for number in range(rounds + 1):
        yield from ((number, peer) for peer in (peers if number % 2 else peers[::-1]))


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
