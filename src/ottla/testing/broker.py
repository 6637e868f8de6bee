"""Brokers for tests.

`BrokerProcess` is what a user runs: a separate process that is found by its port and stopped by
signals. It is the one to kill. `EmbeddedBroker` runs on the test's event loop and gives the test
access to its internals; `broker_thread.BrokerThread` runs one on an event loop of its own. All of
them listen on a free port of the loopback interface and keep their data in a directory that is
removed at the end, unless the test supplies one.

Readiness is detected in the broker's own log, so a broker that cannot start fails the test at once,
and the error includes the log.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.base.config.broker import BrokerConfig
from ottla.base.ports import FileSystem
from ottla.broker.broker import Broker
from ottla.broker.clock import SystemClock
from ottla.storage.file import OsFileSystem

HOST = "127.0.0.1"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.01
MAX_OPEN_FILES = 1_000
LOG_TAIL_LINES = 30

_LISTENING = re.compile(r"listening on (\w+)://[^:]*:(\d+)")
_READY = re.compile(r"broker -?\d+ of cluster \S+ is ready")
_STRICT = """
from ottla.wire.codec import set_strict
set_strict(True)
from ottla.cli.main import main
main()
"""
_SOURCE = str(Path(__file__).parents[2])
"""Added to the path, so that the process runs the same Ottla as the test."""


class BrokerFailed(AssertionError):
    """The broker ended, or did not start, answer or stop in time.

    The message ends with the last lines of its log.
    """


class BrokerProcess:
    """A broker in a process of its own. As a context manager it starts and removes the broker.

    Args:
        data_dir: Directory of the log; a temporary one by default.
        overrides: Broker properties.
        port: Port to listen on; 0 takes a free one.
        strict: Fail on a response with a field that its API version does not have.
        log_level: Level of the broker's log.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        overrides: Mapping[str, str] | None = None,
        port: int = 0,
        strict: bool = False,
        log_level: str = "INFO",
    ) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="ottla-broker-"))
        self.data_dir = Path(data_dir) if data_dir is not None else self._home / "data"
        self.log_file = self._home / "broker.log"
        self.overrides = dict(overrides or {})
        self.port = port
        self._strict = strict
        self._log_level = log_level
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    # ------------------------------------------------------------------------- start and stop

    def start(self, *, wait: bool = True) -> Self:
        """Start the broker, on its previous port if it ran before.

        Args:
            wait: Wait until the broker is ready.

        Raises:
            BrokerFailed: The broker did not become ready.
        """
        assert not self.is_running, "the broker is already running"
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, env=_environment()
            )
        if wait:
            self.wait_until_ready()
        return self

    def command(self) -> list[str]:
        program = ["-c", _STRICT] if self._strict else ["-m", "ottla"]
        options = ["--data-dir", str(self.data_dir), "--listen", f"{HOST}:{self.port}"]
        options += ["--log-level", self._log_level]
        for name, value in self.overrides.items():
            options += ["--override", f"{name}={value}"]
        return [sys.executable, *program, "broker", *options]

    def wait_until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the broker accepts connections.

        Args:
            timeout_s: Seconds to wait.

        Raises:
            BrokerFailed: The broker ended, or did not become ready in time.
        """
        self.wait_for_log(_READY, timeout_s)
        listening = _LISTENING.search(self.log())
        assert listening is not None, "the broker is ready, but its log names no port"
        self.port = int(listening[2])

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop the broker with SIGTERM and return its exit code.

        Args:
            timeout_s: Seconds to wait.

        Raises:
            BrokerFailed: The broker did not stop in time.
        """
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> int:
        """Kill the broker with SIGKILL, as in a crash, and return its exit code."""
        return self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def restart(self, *, kill: bool = False) -> Self:
        """Stop the broker and start it with the same data, port and properties.

        Args:
            kill: Kill the broker in place of stopping it.
        """
        if self.is_running:
            self.kill() if kill else self.stop()
        return self.start()

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the broker ends by itself, and return its exit code.

        Args:
            timeout_s: Seconds to wait.

        Raises:
            BrokerFailed: The broker did not exit in time.
        """
        assert self._process is not None, "the broker has not been started"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self._failed(f"did not exit within {timeout_s} s") from None

    def close(self) -> None:
        """Stop the broker if it runs, and delete its temporary files."""
        try:
            if self.is_running:
                self.stop()
        finally:
            if self.is_running:
                self.kill()
            shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self if self.is_running else self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the broker.

        Args:
            number: The signal.
        """
        assert self._process is not None, "the broker has not been started"
        self._process.send_signal(number)

    def _end(self, number: signal.Signals, timeout_s: float) -> int:
        self.send_signal(number)
        return self.wait(timeout_s)

    # ----------------------------------------------------------------------------- inspection

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """ID of the process."""
        assert self._process is not None, "the broker has not been started"
        return self._process.pid

    @property
    def bootstrap(self) -> str:
        """Address for a client's `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    @property
    def ports(self) -> dict[str, int]:
        """Ports of the listeners, by name."""
        return {name: int(port) for name, port in _LISTENING.findall(self.log())}

    def log(self) -> str:
        """Return the log since the last start."""
        with self.log_file.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace")

    def wait_for_log(
        self, pattern: str | re.Pattern[str], timeout_s: float = START_TIMEOUT_S
    ) -> re.Match[str]:
        """Wait until the log since the last start matches a pattern.

        Args:
            pattern: Regular expression.
            timeout_s: Seconds to wait.

        Returns:
            The match.

        Raises:
            BrokerFailed: The broker ended, or did not log the pattern in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            is_running = self.is_running  # checked first, so that its last lines count
            found = re.search(pattern, self.log())
            if found is not None:
                return found
            if not is_running:
                raise self._failed(f"exited with code {self.wait()}")
            if time.monotonic() > deadline:
                raise self._failed(f"did not log {pattern!r} in {timeout_s} s")
            time.sleep(POLL_S)

    def _failed(self, what: str) -> BrokerFailed:
        tail = "\n".join(self.log().splitlines()[-LOG_TAIL_LINES:])
        return BrokerFailed(f"the broker {what}; the end of its log:\n{tail}")


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (_SOURCE, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


class EmbeddedBroker:
    """A broker on the running event loop: `async with EmbeddedBroker() as embedded: …`.

    Args:
        data_dir: Directory of the log; a temporary one by default.
        overrides: Broker properties.
        fs: File system, for example one that fails.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        overrides: Mapping[str, str] | None = None,
        fs: FileSystem | None = None,
    ) -> None:
        self._temporary = None if data_dir is not None else tempfile.mkdtemp(prefix="ottla-broker-")
        self.data_dir = Path(data_dir if data_dir is not None else f"{self._temporary}/data")
        properties = {"listeners": f"PLAINTEXT://{HOST}:0", "log.dirs": str(self.data_dir)}
        config = BrokerConfig.from_properties({**properties, **(overrides or {})})
        self.broker = Broker(config, fs or OsFileSystem(MAX_OPEN_FILES), SystemClock())

    @property
    def port(self) -> int:
        """Port that the broker listens on."""
        return next(iter(self.broker.ports.values()))

    @property
    def bootstrap(self) -> str:
        """Address for a client's `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        try:
            await self.broker.start()
        except BaseException:
            self._remove()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.broker.stop()
        finally:
            self._remove()

    def _remove(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
