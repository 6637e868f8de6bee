"""Apache Kafka's own broker, as a process: one node that is both broker and controller."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from compat.java import Java

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.05
LOG_TAIL = 4_000
SASL_LISTENER = "SASL_PLAINTEXT"
_STARTED = re.compile(r"Kafka Server started")

_PROPERTIES = """
process.roles=broker,controller
node.id={node_id}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={host}:{controller_port}
log.dirs={data_dir}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=200
log.initial.task.delay.ms=100
log.retention.check.interval.ms=200
metadata.log.max.record.bytes.between.snapshots=4000
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=2
"""


_WITH_SASL = """
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port},{sasl}://{host}:{sasl_port}
advertised.listeners=PLAINTEXT://{host}:{port},{sasl}://{host}:{sasl_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{sasl}:{sasl}
sasl.enabled.mechanisms=PLAIN
listener.name.{lower}.plain.sasl.jaas.config={jaas}
"""
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class ApacheKafka:
    """Broker of Apache Kafka.

    As a context manager it formats a new directory, starts the broker, and stops it cleanly.
    """

    def __init__(
        self,
        java: Java,
        home: Path,
        *,
        node_id: int = 1,
        overrides: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """Create a broker without starting it.

        Args:
            java: Runs it.
            home: Directory for its files.
            node_id: ID of the node.
            overrides: Further properties.
            users: Passwords by user, for a second listener, with SASL and the mechanism PLAIN.
        """
        self.home = home
        self.data_dir = home / "data"
        self.node_id = node_id
        self.port, self.controller_port, self.sasl_port = _free_ports(3)
        self._users = dict(users or {})
        self._java = java
        self._overrides = dict(overrides or {})
        self._properties = home / "server.properties"
        self._log = home / "kafka.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop() if error is None else self.end()

    def write_properties(self) -> Path:
        """Write the server.properties for the broker, and return the path."""
        self.home.mkdir(parents=True, exist_ok=True)
        overrides = "".join(f"{name}={value}\n" for name, value in self._overrides.items())
        self._properties.write_text(
            _PROPERTIES.format(
                node_id=self.node_id,
                host=HOST,
                port=self.port,
                controller_port=self.controller_port,
                data_dir=self.data_dir,
            )
            + self._sasl_properties()
            + overrides
        )
        return self._properties

    def _sasl_properties(self) -> str:
        if not self._users:
            return ""
        users = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
        return _WITH_SASL.format(
            host=HOST,
            port=self.port,
            controller_port=self.controller_port,
            sasl=SASL_LISTENER,
            lower=SASL_LISTENER.lower(),
            sasl_port=self.sasl_port,
            jaas=f"{_PLAIN_MODULE} required {users};",
        )

    def start(self) -> None:
        self.write_properties()
        if not (self.data_dir / "meta.properties").exists():
            self._format()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._java.arguments("kafka.Kafka"), str(self._properties)],
                stdout=log,
                stderr=log,
            )
        self._wait_until_started()

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker, without a chance to write anything."""
        self._end(signal.SIGKILL)

    def end(self) -> None:
        """Kill the broker if it has been started, whatever its state."""
        if self._process is not None:
            self.kill()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def _format(self) -> None:
        cluster_id = self._java.succeed("kafka-storage", "random-uuid").out.strip()
        self._java.succeed(
            "kafka-storage",
            *("format", "--standalone", "--cluster-id", cluster_id),
            *("--config", str(self._properties)),
        )

    def _wait_until_started(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while _STARTED.search(self.log()) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"Apache Kafka did not start:\n{self.log()[-LOG_TAIL:]}")
            time.sleep(POLL_S)

    def _end(self, signum: int) -> None:
        assert self._process is not None, "it runs"
        process, self._process = self._process, None
        process.send_signal(signum)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError("Apache Kafka did not stop") from None


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind((HOST, 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
