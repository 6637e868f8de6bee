"""ZooKeeper members as child processes, for users without an ensemble of their own.

`jars.py` finds ZooKeeper's jars. docs/operations/capacity.md has the memory limits of a member.

    <directory>/zoo.cfg, log4j2.properties, log4j.properties, logback.xml, member.log
    <directory>/jaas.conf               password of the brokers, in secure mode (0600)
    <directory>/data/myid, data/version-2/…

In secure mode, only the owner can read the files.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import NamedTuple

from ottla.base.child_process import end_process
from ottla.base.errors import UserError
from ottla.base.java import find_java
from ottla.base.private_file import write_private
from ottla.metadata.zookeeper.ensemble_security import JAAS_FILE, EnsembleSecurity
from ottla.metadata.zookeeper.jars import find_jars

JAVA_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xss512k",
    # With 64 MB, a member runs out of memory at about 110,000 nodes, and does not exit.
    "-Xmx128m",
    "-XX:+ExitOnOutOfMemoryError",
)
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 500
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.05
COMMAND_TIMEOUT_S = 1.0
TLS_COMMAND_TIMEOUT_S = 5.0
"""The first handshake of a Java process takes a second or more."""
PRIVATE_UMASK = 0o077
PRIVATE_MODE = 0o700

_LOG4J2 = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
# Without this, each failed TLS handshake of a stranger logs two stack traces.
logger.netty.name = org.apache.zookeeper.server.NettyServerCnxnFactory
logger.netty.level = error
"""
_LOG4J = """\
log4j.rootLogger=WARN, out
log4j.logger.org.apache.zookeeper.server.NettyServerCnxnFactory=ERROR
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %-5p %c{1}: %m%n
"""
_LOGBACK = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5p %c{0}: %m%n</pattern></encoder>
  </appender>
  <logger name="org.apache.zookeeper.server.NettyServerCnxnFactory" level="ERROR"/>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
# ZooKeeper's logging library, which differs between versions, reads one of these files.
_LOGGING = {
    "log4j2.properties": _LOG4J2,
    "log4j.properties": _LOG4J,
    "logback.xml": _LOGBACK,
}


class MemberAddress(NamedTuple):
    host: str
    client_port: int
    quorum_port: int
    election_port: int


class EnsembleMember:
    """One ZooKeeper server.

    Args:
        directory: The directory of the server's files.
        number: The server's number in the ensemble, starting at 1.
        members: The addresses of all servers of the ensemble.
        security: Certificates and the brokers' user, or None for plain text and no authentication.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        number: int,
        members: Sequence[MemberAddress],
        security: EnsembleSecurity | None = None,
    ) -> None:
        # Java runs in this directory, so a relative path would be resolved differently there.
        self.directory = Path(directory).absolute()
        self.number = number
        self.address = members[number - 1]
        self._members = members
        self._security = security
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        return f"{self.address.host}:{self.address.client_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the member was started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, without waiting until it serves.

        Raises:
            UserError: Java or ZooKeeper's jars are not installed.
        """
        self._write_files()
        with (self.directory / "member.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C must reach the supervisor only: it stops members
                umask=-1 if self._security is None else PRIVATE_UMASK,
            )

    def command(self) -> list[str]:
        classpath = os.pathsep.join([str(self.directory), *map(str, find_jars())])
        config = str(self.directory / "zoo.cfg")
        flags = [*JAVA_FLAGS]
        if (self.directory / JAAS_FILE).exists():
            flags.append(f"-Djava.security.auth.login.config={self.directory / JAAS_FILE}")
        return [str(find_java()), *flags, "-cp", classpath, MAIN, config]

    def wait_until_serving(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the server is ready.

        Raises:
            UserError: The server exited or was not ready in time; the message has its last log
                lines.
        """
        deadline = time.monotonic() + timeout_s
        while not self.is_serving():
            if not self.is_running:
                raise UserError(f"ZooKeeper server {self.number} exited: {self._log_tail()}")
            if time.monotonic() > deadline:
                raise UserError(
                    f"ZooKeeper server {self.number} did not become ready within {timeout_s:g} "
                    f"s: {self._log_tail()}"
                )
            time.sleep(POLL_S)

    def is_serving(self) -> bool:
        """Return whether the server is part of a quorum, or ready as a standalone server."""
        response = self.four_letter_command("srvr")
        return response.startswith("Zookeeper version") and "Mode:" in response

    def four_letter_command(self, command: str) -> str:
        """Send one of ZooKeeper's four-letter commands; return '' if the server is down."""
        try:
            with self._connect() as peer:
                peer.sendall(command.encode())
                response = b""
                while data := peer.recv(65536):
                    response += data
                return response.decode("utf-8", "replace")
        except OSError:
            return ""

    def _connect(self) -> socket.socket:
        address = (self.address.host, self.address.client_port)
        if self._security is None:
            return socket.create_connection(address, COMMAND_TIMEOUT_S)
        peer = socket.create_connection(address, TLS_COMMAND_TIMEOUT_S)
        try:
            return self._security.client_context().wrap_socket(peer)
        except BaseException:
            peer.close()
            raise

    def stop(self) -> None:
        self._end(SIGTERM)

    def kill(self) -> None:
        self._end(SIGKILL)

    def signal(self, number: Signals) -> None:
        assert self._process is not None, "the member was started"
        self._process.send_signal(number)

    def _end(self, number: Signals) -> None:
        if self._process is not None:
            end_process(self._process, number, STOP_TIMEOUT_S)

    def _write_files(self) -> None:
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        if self._security is not None:
            self._security.check()
            self.directory.chmod(PRIVATE_MODE)
        (data / "myid").write_text(f"{self.number}\n")
        for name, text in _LOGGING.items():
            (self.directory / name).write_text(text)
        (self.directory / "zoo.cfg").write_text("\n".join(self._config(data)) + "\n")
        jaas = None if self._security is None else self._security.jaas()
        if jaas is None:
            (self.directory / JAAS_FILE).unlink(missing_ok=True)
        else:
            write_private(self.directory / JAAS_FILE, jaas)

    def _config(self, data: Path) -> list[str]:
        port = "clientPort" if self._security is None else "secureClientPort"
        lines = [
            f"tickTime={TICK_MS}",
            "initLimit=20",
            "syncLimit=4",
            f"dataDir={data}",
            f"{port}={self.address.client_port}",
            f"{port}Address={self.address.host}",
            # Short sessions are allowed: leases, not sessions, decide which broker may lead.
            f"minSessionTimeout={TICK_MS}",
            "maxSessionTimeout=60000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr,ruok,mntr",
            "autopurge.snapRetainCount=3",
            "autopurge.purgeInterval=1",
            "snapshot.compression.method=gz",
        ]
        if self._security is not None:
            lines += self._security.server_config()
        if len(self._members) > 1:
            lines += [
                f"server.{number}={member.host}:{member.quorum_port}:{member.election_port}"
                for number, member in enumerate(self._members, start=1)
            ]
        return lines

    def _log_tail(self) -> str:
        try:
            lines = (self.directory / "member.log").read_text("utf-8", "replace").splitlines()
        except OSError:
            return "it wrote no log file"
        return " | ".join(lines[-3:]) or "it wrote no output"


def local_addresses(
    count: int, ports: Sequence[int], host: str = "127.0.0.1"
) -> list[MemberAddress]:
    """Return the addresses of servers on one machine.

    Args:
        count: The number of servers.
        ports: Free ports, three for each server.
        host: The host name or address of all servers.
    """
    assert len(ports) >= 3 * count
    return [MemberAddress(host, *ports[3 * index : 3 * index + 3]) for index in range(count)]
