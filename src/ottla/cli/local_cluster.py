"""A cluster on one machine: ZooKeeper and brokers as supervised child processes.

    <data dir>/zookeeper/            data and log of the ZooKeeper server
    <data dir>/broker-<id>/          data of a broker
    <data dir>/broker-<id>.properties  configuration of a broker (0600)
    <data dir>/broker-<id>.log       log output of a broker
    <data dir>/secure/               certificates, users and configurations of a secured cluster
    <data dir>/cluster.*             communication with other commands (cluster_control.py)

A child that exits unexpectedly is restarted after a pause that doubles with every restart. A broker
that `ottla cluster stop ID` has stopped stays stopped until `ottla cluster start ID`. Ctrl-C or
SIGTERM stops the brokers one after another, each handing over its leaderships, and then ZooKeeper.
A second signal kills them."""

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

from ottla.base.child_process import end_process
from ottla.base.config.properties import format_properties
from ottla.base.errors import UserError
from ottla.base.private_file import write_private
from ottla.cli.cluster_control import (
    RESTARTING,
    RUNNING,
    STARTING,
    STOPPED,
    STOPPING,
    ClusterControl,
)
from ottla.cli.listening import advertised_host, is_loopback
from ottla.cli.secure.layout import LOCAL_DIRECTORY

if TYPE_CHECKING:
    from ottla.cli.secure.local import LocalSecurity
    from ottla.metadata.zookeeper.ensemble import EnsembleMember
    from ottla.metadata.zookeeper.ensemble_security import EnsembleSecurity

READY = re.compile(rb"broker -?\d+ of cluster \S+ is ready")
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 45.0
POLL_S = 0.1
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""Running time after which the restart pause of a broker is reset to the first pause."""
MOST_REPLICAS = 3
HOST = "127.0.0.1"
DEFAULT_CHROOT = "/ottla"
CONNECT_TIMEOUT_S = 5.0


class BrokerChild:
    """A broker that runs as a child process, with its output in a log file."""

    def __init__(self, id: int, command: Sequence[str], log_file: Path) -> None:
        self.id = id
        self._command = command
        self._log_file = log_file
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._was_ready = False
        self._pause_s = FIRST_PAUSE_S
        self._started_at = 0.0
        self._ended_at: float | None = None
        self._stop_requested_at: float | None = None
        self._was_stop_reported = False

    def start(self) -> None:
        self._was_ready = False
        self._log_start = self._log_file.stat().st_size if self._log_file.exists() else 0
        self._started_at, self._ended_at = time.monotonic(), None
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # keeps Ctrl-C from the broker; the supervisor stops it
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def state(self) -> str:
        if self._stop_requested_at is not None:
            return STOPPING if self.is_running else STOPPED
        if not self.is_running:
            return RESTARTING
        return RUNNING if self._has_reported_ready() else STARTING

    def is_ready(self) -> bool:
        """Return whether the broker has reported that it is ready.

        Raises:
            UserError: The broker has exited. The message contains its last line of output.
        """
        is_running = self.is_running  # checked first: an exited broker's output is complete
        if self._has_reported_ready():
            return True
        if not is_running:
            lines = self._output().decode("utf-8", "replace").strip().splitlines()
            raise UserError(f"Broker {self.id} exited: {lines[-1] if lines else 'no output'}")
        return False

    def _has_reported_ready(self) -> bool:
        if not self._was_ready:
            self._was_ready = READY.search(self._output()) is not None
        return self._was_ready

    def _output(self) -> bytes:
        with self._log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read()

    def keep_stopped(self, say: Callable[[str], None]) -> None:
        """Stop the broker on request. Call this repeatedly while the request exists."""
        now = time.monotonic()
        if self._stop_requested_at is None:
            self._stop_requested_at, self._was_stop_reported = now, False
            if self._process is not None and self.is_running:
                self._process.send_signal(signal.SIGTERM)
        if not self.is_running:
            if not self._was_stop_reported:
                self._was_stop_reported = True
                say(
                    f"Broker {self.id} was stopped on request. Start it again with: "
                    f"ottla cluster start {self.id} --data-dir {self._log_file.parent}"
                )
        elif self._process is not None and now - self._stop_requested_at > STOP_TIMEOUT_S:
            self._process.kill()

    def keep_running(self, say: Callable[[str], None]) -> None:
        """Start the broker if it is not running. Call this repeatedly."""
        if self.is_running:
            return
        if self._stop_requested_at is not None:
            self._stop_requested_at = None
            self._pause_s = FIRST_PAUSE_S
            say(f"Starting broker {self.id} on request.")
            self.start()
            return
        now = time.monotonic()
        if self._ended_at is None:
            self._ended_at = now
            if now - self._started_at > STEADY_S:
                self._pause_s = FIRST_PAUSE_S
            code = None if self._process is None else self._process.returncode
            say(
                f"Broker {self.id} exited with code {code} and will be restarted. "
                f"See {self._log_file}."
            )
        elif now - self._ended_at >= self._pause_s:
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            self.start()

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the broker and wait for its exit."""
        if self._process is not None:
            end_process(self._process, number, STOP_TIMEOUT_S)


class LocalCluster:
    """A cluster of broker processes on this machine, with a ZooKeeper server if needed."""

    def __init__(
        self,
        data_dir: str,
        brokers: int,
        port: int,
        properties: Mapping[str, str],
        say: Callable[[str], None],
        zookeeper: str | None = None,
        *,
        host: str = HOST,
        is_secure: bool = False,
        is_insecure: bool = False,
        zookeeper_security: EnsembleSecurity | None = None,
    ) -> None:
        """Describe a cluster; `start` or `run` starts it.

        Args:
            data_dir: Directory of all brokers' data, created if missing.
            brokers: Number of brokers; their IDs start at 1.
            port: Port of the first broker; the others use the following ports.
            properties: Configuration of every broker.
            say: Called with one sentence for each event.
            zookeeper: An existing ZooKeeper, as in `zookeeper.connect`; None starts one.
            host: Address that the brokers listen on.
            is_secure: Whether all connections use TLS and authentication.
            is_insecure: Whether brokers without security may listen on an address that other
                machines can reach.
            zookeeper_security: TLS and authentication of the ZooKeeper that is started. The brokers
                use it unless `properties` have settings of their own for ZooKeeper.
        """
        self._directory = Path(data_dir).absolute()
        self._ports = [port + index for index in range(brokers)]
        self._properties = properties
        self._say = say
        self._brokers: list[BrokerChild] = []
        self._existing_zookeeper = zookeeper
        self._host = host
        self._is_secure = is_secure
        self._is_insecure = is_insecure
        self._security: LocalSecurity | None = None
        self._zookeeper_security = zookeeper_security
        self._zookeeper: EnsembleMember | None = None
        """The ZooKeeper server that this cluster has started, if any."""
        self._control: ClusterControl | None = None
        self._zookeeper_started_at = 0.0
        self._signals = 0

    @property
    def bootstrap(self) -> str:
        host = advertised_host(self._host)
        return ",".join(f"{host}:{port}" for port in self._ports)

    @property
    def profile(self) -> Path | None:
        """The administrator's profile if the cluster is secured."""
        return None if self._security is None else self._security.profile

    def run(self) -> int:
        """Run until a signal arrives, and serve `ottla cluster stop` and `start`.

        Returns:
            The exit code.

        Raises:
            UserError: The cluster cannot start.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._signalled())
        self._make_directory()
        control = ClusterControl(self._directory)
        control.open()
        try:
            self.start()
            self._control = control
            self.supervise()
            if not self._signals:
                self._say(f"The cluster is ready. bootstrap.servers={self.bootstrap}")
                if self.profile is not None:
                    self._say(f"Profile of the administrator: {self.profile}")
            while not self._signals:
                time.sleep(POLL_S)
                self.supervise()
        finally:
            self.stop()
            control.close()
        return 0

    def _signalled(self) -> None:
        self._signals += 1
        if self._signals > 1:
            for broker in self._brokers:
                broker.end(signal.SIGKILL)

    # ------------------------------------------------------------------------------------ start

    def start(self) -> None:
        """Start ZooKeeper and the brokers, and wait until they are ready.

        Raises:
            UserError: The cluster cannot start. Call `stop` to stop what has been started.
        """
        self._check_security()
        for port in self._ports:
            _check_free(self._host, port)
        self._make_directory()
        connect = self._start_zookeeper()
        if self._security is not None:
            self._security.finish(connect)
        for id, port in enumerate(self._ports, start=1):
            command = self._command(id, port, connect)
            broker = BrokerChild(id, command, self._directory / f"broker-{id}.log")
            self._brokers.append(broker)
            broker.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._signals and not all(broker.is_ready() for broker in self._brokers):
            if time.monotonic() > deadline:
                raise UserError(
                    f"The brokers were not ready within {START_TIMEOUT_S:g} s. "
                    f"See {self._directory}/broker-*.log."
                )
            time.sleep(POLL_S)

    def _check_security(self) -> None:
        """Choose the security of the cluster.

        Raises:
            UserError: The cluster would be open to other machines, or less secure than before.
        """
        if self._is_secure:
            from ottla.cli.secure.local import LocalSecurity

            if self._existing_zookeeper is not None:
                raise UserError(
                    "--secure and --zookeeper cannot be used together. For brokers with another "
                    "ZooKeeper, use: ottla secure init --zookeeper"
                )
            host = advertised_host(self._host)
            self._security = LocalSecurity(self._directory, host, self._ports)
        elif (self._directory / LOCAL_DIRECTORY).exists():
            raise UserError(
                f"The cluster in {self._directory} is secured. Start it with --secure, or use "
                "another --data-dir."
            )
        elif not self._is_insecure and not is_loopback(self._host):
            raise UserError(
                f"Brokers on {self._host} are open to other machines, without encryption or "
                "authentication. Add --secure, which makes what `ottla secure init` makes, or add "
                "--insecure if that is intended."
            )

    def _make_directory(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"Cannot create the data directory {self._directory}: {error.strerror}."
            ) from None

    def _start_zookeeper(self) -> str:
        """Start ZooKeeper unless one exists, and return `zookeeper.connect` for the brokers."""
        if self._existing_zookeeper is not None:
            return checked_connect(self._existing_zookeeper)
        if self._security is not None:
            self._zookeeper_security = self._security.prepare()
        self._zookeeper = _member(self._directory / "zookeeper", self._zookeeper_security)
        self._zookeeper.start()
        self._zookeeper.wait_until_serving()
        return self._zookeeper.connect + DEFAULT_CHROOT

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
            "zookeeper.connect": zookeeper,
        }
        command = [sys.executable, "-m", "ottla", "broker"]
        if self._security is not None:
            properties = {**self._security.properties(id, self._host), **properties}
        else:
            if self._zookeeper_security is not None:
                properties = {**self._zookeeper_security.broker_properties(), **properties}
            command += ["--listen", f"{self._host}:{port}"]
            command += ["--data-dir", str(self._directory / f"broker-{id}")]
            command += ["--insecure"] if self._is_insecure else []
        # In a file, because other users can see command lines, and properties may be passwords.
        file = self._directory / f"broker-{id}.properties"
        write_private(file, format_properties(properties))
        return [*command, "--config", str(file), "--override", f"node.id={id}"]

    # -------------------------------------------------------------------------- run and stop

    def supervise(self) -> None:
        """Restart exited processes and carry out requests. Call this repeatedly."""
        if self._zookeeper is not None and not self._zookeeper.is_running:
            self._restart_zookeeper(self._zookeeper)
        for broker in self._brokers:
            if self._control is not None and self._control.is_stop_requested(broker.id):
                broker.keep_stopped(self._say)
            else:
                broker.keep_running(self._say)
        if self._control is not None:
            self._control.publish({broker.id: broker.state for broker in self._brokers})

    def _restart_zookeeper(self, member: EnsembleMember) -> None:
        now = time.monotonic()
        if now - self._zookeeper_started_at > FIRST_PAUSE_S:
            self._zookeeper_started_at = now
            member.start()

    def kill(self, id: int) -> None:
        """Kill a broker without a clean shutdown. `supervise` restarts it."""
        self._brokers[id - 1].end(signal.SIGKILL)

    def stop(self) -> None:
        for broker in self._brokers:
            broker.end(signal.SIGTERM)
        if self._zookeeper is not None:
            self._zookeeper.stop()


def _check_free(host: str, port: int) -> None:
    if not 0 < port < 65536:
        raise UserError(f"Port {port} is out of range. Use 1 to 65535.")
    try:
        with closing(socket.create_server((host.strip("[]"), port), family=_family(host))):
            pass
    except OSError as error:
        raise UserError(
            f"Cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}. Choose other ports "
            "with --port."
        ) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _member(directory: Path, security: EnsembleSecurity | None) -> EnsembleMember:
    from ottla.metadata.zookeeper.ensemble import EnsembleMember, local_addresses

    listeners = [socket.create_server((HOST, 0)) for _ in range(3)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return EnsembleMember(directory, 1, local_addresses(1, ports), security)


def checked_connect(connect: str) -> str:
    """Check that a ZooKeeper server is reachable, and return `connect` with a chroot.

    Raises:
        UserError: `connect` cannot be parsed, or no server can be reached.
    """
    from ottla.metadata.zookeeper.store import parse_connect

    servers, root = parse_connect(connect)
    failure = ""
    for address in servers:
        try:
            with closing(socket.create_connection(address, CONNECT_TIMEOUT_S)):
                return connect if root else connect.rstrip("/") + DEFAULT_CHROOT
        except OSError as error:
            failure = error.strerror or str(error)
    raise UserError(f"Cannot reach ZooKeeper at {connect}: {failure}.")
