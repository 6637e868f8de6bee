"""A whole cluster on one machine: a ZooKeeper and brokers as child processes, kept running.

    <data dir>/zookeeper/            the member, with its log
    <data dir>/broker-<id>/          a broker's logs
    <data dir>/broker-<id>.log       what it says

A child that ends by itself is started again, after a pause that doubles while it does not stay.
Ctrl-C or SIGTERM stops the brokers one after another, each handing over what it leads, and
ZooKeeper last; a second one kills them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.base.errors import UserError

if TYPE_CHECKING:
    from ottla.metadata.zookeeper.ensemble import Member

READY = re.compile(rb"broker -?\d+ of cluster \S+ is ready")
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 45.0
POLL_S = 0.1
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""Who has run that long is not failing again and again."""
MOST_REPLICAS = 3
HOST = "127.0.0.1"


class BrokerChild:
    def __init__(self, id: int, command: Sequence[str], log_file: Path) -> None:
        self.id = id
        self._command = command
        self._log_file = log_file
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._pause_s = FIRST_PAUSE_S
        self._started_at = 0.0
        self._ended_at: float | None = None

    def start(self) -> None:
        self._log_start = self._log_file.stat().st_size if self._log_file.exists() else 0
        self._started_at, self._ended_at = time.monotonic(), None
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the supervisor, which stops it in order
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def is_ready(self) -> bool:
        """Raises UserError with its last words if it has ended."""
        is_running = self.is_running  # asked first: what it said last counts
        said = self._said()
        if READY.search(said):
            return True
        if not is_running:
            last = said.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
            raise UserError(f"Broker {self.id} ended: {last[0]}")
        return False

    def _said(self) -> bytes:
        with self._log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read()

    def restart_if_due(self, say: Callable[[str], None]) -> None:
        now = time.monotonic()
        if self.is_running:
            return
        if self._ended_at is None:
            self._ended_at = now
            if now - self._started_at > STEADY_S:
                self._pause_s = FIRST_PAUSE_S
            code = None if self._process is None else self._process.returncode
            say(f"Broker {self.id} ended (exit code {code}); it is started again. {self._log_file}")
        elif now - self._ended_at >= self._pause_s:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self.start()

    def end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class LocalCluster:
    def __init__(
        self,
        data_dir: str,
        brokers: int,
        port: int,
        properties: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._directory = Path(data_dir).absolute()
        self._ports = [port + index for index in range(brokers)]
        self._properties = properties
        self._say = say
        self._brokers: list[BrokerChild] = []
        self._zookeeper: Member | None = None
        self._zookeeper_started_at = 0.0
        self._signals = 0

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports)

    def run(self) -> int:
        """Until a signal comes; the exit code. UserError if it cannot start."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._signalled())
        try:
            self.start()
            if not self._signals:
                self._say(f"The cluster is ready. bootstrap.servers={self.bootstrap}")
            while not self._signals:
                time.sleep(POLL_S)
                self.supervise()
        finally:
            self.stop()
        return 0

    def _signalled(self) -> None:
        self._signals += 1
        if self._signals > 1:
            for broker in self._brokers:
                broker.end(signal.SIGKILL)

    # ------------------------------------------------------------------------------------ start

    def start(self) -> None:
        """UserError if it cannot; what runs by then is for `stop`."""
        for port in self._ports:
            _check_free(port)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self._directory} cannot be made: {error.strerror}.") from None
        self._zookeeper = _member(self._directory / "zookeeper")
        self._zookeeper.start()
        self._zookeeper.wait_until_serving()
        for id, port in enumerate(self._ports, start=1):
            command = self._command(id, port, self._zookeeper.connect)
            broker = BrokerChild(id, command, self._directory / f"broker-{id}.log")
            self._brokers.append(broker)
            broker.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._signals and not all(broker.is_ready() for broker in self._brokers):
            if time.monotonic() > deadline:
                raise UserError(
                    f"The brokers were not ready in {START_TIMEOUT_S:g} s; "
                    f"see {self._directory}/broker-*.log."
                )
            time.sleep(POLL_S)

    def _command(self, id: int, port: int, zookeeper: str) -> list[str]:
        replicas = str(min(MOST_REPLICAS, len(self._ports)))
        in_sync = str(max(1, min(MOST_REPLICAS, len(self._ports)) - 1))
        properties = {
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            **self._properties,
            "node.id": str(id),
            "zookeeper.connect": f"{zookeeper}/ottla",
        }
        command = [sys.executable, "-m", "ottla", "broker", "--listen", f"{HOST}:{port}"]
        command += ["--data-dir", str(self._directory / f"broker-{id}")]
        for name, value in properties.items():
            command += ["--override", f"{name}={value}"]
        return command

    # -------------------------------------------------------------------------- run and stop

    def supervise(self) -> None:
        """To be called again and again while it runs."""
        assert self._zookeeper is not None
        now = time.monotonic()
        if not self._zookeeper.is_running and now - self._zookeeper_started_at > FIRST_PAUSE_S:
            self._zookeeper_started_at = now
            self._zookeeper.start()
        for broker in self._brokers:
            broker.restart_if_due(self._say)

    def kill(self, id: int) -> None:
        """One broker, with no chance to hand over; `supervise` starts it again."""
        self._brokers[id - 1].end(signal.SIGKILL)

    def stop(self) -> None:
        for broker in self._brokers:
            broker.end(signal.SIGTERM)
        if self._zookeeper is not None:
            self._zookeeper.stop()


def _check_free(port: int) -> None:
    if not 0 < port < 65536:
        raise UserError(f"{port} is no port.")
    try:
        with closing(socket.create_server((HOST, port))):
            pass
    except OSError as error:
        raise UserError(
            f"{HOST}:{port} cannot be listened on: {os.strerror(error.errno or 0)}."
        ) from None


def _member(directory: Path) -> Member:
    from ottla.metadata.zookeeper.ensemble import Member, local_addresses

    listeners = [socket.create_server((HOST, 0)) for _ in range(3)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return Member(directory, 1, local_addresses(1, ports))
