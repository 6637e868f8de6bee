"""Processes and files of the demo, all in one directory.

<folder>/broker/…, broker.log     a single broker; or cluster/ with ZooKeeper and broker-<id>/
<folder>/connect/*.properties     the worker and its three connectors
<folder>/streams/                 the application's state
<folder>/spark.log                output of the worker and the application, one Spark application
<folder>/lines.txt                read by the source connector
<folder>/counts.txt, windows.txt  written by the sink connectors"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from ottla.base.child_process import wait_or_kill
from ottla.base.errors import UserError
from ottla.cli.demo.application import COUNTS, LINES, WINDOWS
from ottla.cli.demo.verification import WordCounts
from ottla.cli.local_cluster import BrokerChild, LocalCluster

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.05
PARTITIONS = 2
LOG_TAIL_LINES = 5

_WORKER = """\
bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename={folder}/connect/offsets.json
offset.flush.interval.ms=2000
task.engine=spark
listeners=http://{host}:{rest_port}
"""
_SOURCE = """\
name=lines-source
connector.class=FileStreamSource
tasks.max=1
file={folder}/lines.txt
topic={topic}
"""
_SINK = """\
name={name}
connector.class=FileStreamSink
tasks.max=1
file={file}
topics={topic}
"""


class Brokers:
    """A single broker, or a cluster of several brokers."""

    def __init__(self, folder: Path, count: int, say: Callable[[str], None]) -> None:
        self._cluster: LocalCluster | None = None
        self._alone: BrokerChild | None = None
        self.is_left_alone = False
        """Whether `supervise` must not restart brokers."""
        first = _free_ports(9092, count)
        if count > 1:
            self._cluster = LocalCluster(str(folder / "cluster"), count, first, {}, say)
            self.bootstrap = self._cluster.bootstrap
            return
        self.bootstrap = f"{HOST}:{first}"
        command = [sys.executable, "-m", "ottla", "broker", "--listen", self.bootstrap]
        command += ["--data-dir", str(folder / "broker")]
        self._alone = BrokerChild(1, command, folder / "broker.log")

    def start(self) -> None:
        if self._cluster is not None:
            self._cluster.start()
            return
        assert self._alone is not None
        self._alone.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._alone.is_ready():
            if time.monotonic() > deadline:
                raise UserError(f"The broker was not ready within {START_TIMEOUT_S:g} s.")
            time.sleep(POLL_S)

    def supervise(self) -> None:
        """Restart exited brokers of a cluster, and check that a single broker is running.

        Raises:
            UserError: The single broker has exited.
        """
        if self._cluster is not None:
            if not self.is_left_alone:
                self._cluster.supervise()
        elif self._alone is not None:
            self._alone.is_ready()

    def kill(self, id: int) -> None:
        assert self._cluster is not None, "only a cluster survives the loss of a broker"
        self._cluster.kill(id)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
        elif self._alone is not None:
            self._alone.end(signal.SIGTERM)


class Child:
    """A child process that runs until it is stopped, with its output in a file."""

    def __init__(self, name: str, command: Sequence[str], log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # keeps Ctrl-C from the child; the demo stops it
            )

    def check(self) -> None:
        """Check that the process is running.

        Raises:
            UserError: The process has exited. The message contains its last lines of output.
        """
        code = self._process.poll()
        if code is not None:
            lines = self.log_file.read_text(errors="replace").strip().splitlines()
            last = "\n".join(lines[-LOG_TAIL_LINES:]) or "no output"
            raise UserError(
                f"{self.name} exited with code {code}. See {self.log_file}. Its last output:\n"
                f"{last}"
            )

    def ask_to_stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def end(self) -> None:
        """Wait for the process, then kill it and all its children, including Spark's JVM."""
        wait_or_kill(self._process, STOP_TIMEOUT_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


class ResultFile:
    """A file that a sink connector writes, read incrementally.

    A file that has become shorter, as after the retry of a batch, is read from the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counted = WordCounts()
        self._position = 0

    def read_on(self) -> None:
        """Read the complete lines that were added since the last call."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < self._position:
            self.counted, self._position = WordCounts(), 0
        if size == self._position:
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data.rpartition(b"\n")[0]
        if whole:
            self._position += len(whole) + 1
            for line in whole.split(b"\n"):
                self.counted.add(line)


class Pipeline:
    """The brokers, the Connect worker and the Streams application of the demo."""

    def __init__(self, folder: Path, brokers: int, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.replicas = min(3, brokers)
        self.brokers = Brokers(folder, brokers, say)
        self.rest = f"http://{HOST}:{_free_ports(8083, 1)}"
        self.lines = folder / "lines.txt"
        self.counts = ResultFile(folder / "counts.txt")
        self.windows = ResultFile(folder / "windows.txt")
        self._children: list[Child] = []

    @property
    def bootstrap(self) -> str:
        return self.brokers.bootstrap

    def create_topics(self) -> None:
        from ottla import Admin, NewTopic

        with Admin(self.bootstrap) as admin:
            admin.create_topics(
                *(NewTopic(name, PARTITIONS, self.replicas) for name in (LINES, COUNTS, WINDOWS))
            )

    def start_spark(self) -> None:
        """Start the Connect worker and the Streams application."""
        command = [sys.executable, "-m", "ottla.cli.demo.spark_program", self.bootstrap]
        command += [str(self.folder / "streams"), *map(str, self._write_connect_files())]
        self._children.append(Child("The Spark application", command, self.folder / "spark.log"))

    def _write_connect_files(self) -> list[Path]:
        """Write the properties of the worker and its connectors, and return the files."""
        settings = self.folder / "connect"
        settings.mkdir()
        rest_port = self.rest.rpartition(":")[2]
        texts = {
            "worker": _WORKER.format(
                bootstrap=self.bootstrap, folder=self.folder, host=HOST, rest_port=rest_port
            ),
            "lines-source": _SOURCE.format(folder=self.folder, topic=LINES),
            "counts-sink": _SINK.format(name="counts-sink", file=self.counts.path, topic=COUNTS),
            "windows-sink": _SINK.format(
                name="windows-sink", file=self.windows.path, topic=WINDOWS
            ),
        }
        files = [settings / f"{name}.properties" for name in texts]
        for file, text in zip(files, texts.values(), strict=True):
            file.write_text(text)
        return files

    def check(self) -> None:
        """Check that all processes are running.

        Raises:
            UserError: A process has exited.
        """
        self.brokers.supervise()
        for child in self._children:
            child.check()

    def stop(self) -> None:
        for child in self._children:
            child.ask_to_stop()
        for child in self._children:
            child.end()
        self.brokers.stop()


def _free_ports(usual: int, count: int) -> int:
    """Return the first of `count` consecutive free ports.

    If the usual ports are taken, use ports below the range of ephemeral ports."""
    chance = random.SystemRandom()
    for first in (usual, *(chance.randrange(12_000, 30_000 - count) for _ in range(100))):
        try:
            for port in range(first, first + count):
                with closing(socket.create_server((HOST, port))):
                    pass
        except OSError:
            continue
        return first
    raise UserError(f"Cannot find {count} consecutive free ports on {HOST}.")
