"""Files that an application keeps between runs, and the lock that guards them.

    STATE_DIR/APP/TOPIC/            Spark's checkpoint of the query that writes TOPIC: its source
                                    offsets and state (RocksDB, and a changelog for each batch)
    STATE_DIR/APP/TOPIC.topology    topology of the checkpoint; any other topology is refused
    STATE_DIR/APP/TOPIC.store       the topic's table for interactive queries (see `store`)
    STATE_DIR/APP/~lock             locked while the application runs; not a valid topic name

STATE_DIR is a local path, or a URL of one of Spark's file systems (`s3a://…`, `hdfs://…`). For a
URL, the lock and the stores are in this machine's default directory. That is safe: the broker
fences a second run by its transactional ID, and a store can be rebuilt from its topic.
"""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ottla.base.errors import UserError
from ottla.streams.application import Application
from ottla.streams.errors import TopologyError
from ottla.streams.operators.topics import Sink
from ottla.streams.plan.explain import topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPOLOGY = ".topology"
STORE = ".store"
LOCK = "~lock"


def default_state_dir() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "ottla" / "streams"


def is_remote(state_dir: str) -> bool:
    return "://" in state_dir


def app_directory(state_dir: str, name: str) -> str:
    return f"{state_dir.rstrip('/')}/{name}"


def local_directory(state_dir: str, name: str) -> Path:
    """Return the local directory of the lock and the stores."""
    return Path(default_state_dir() if is_remote(state_dir) else state_dir) / name


def checkpoint(app: Application, sink: Sink) -> str:
    return f"{app_directory(app.state_dir, app.name)}/{sink.topic}"


class FileSystem(Protocol):
    """File system operations that checkpoints need."""

    def exists(self, path: str) -> bool: ...

    def read(self, path: str) -> str | None:
        """Return the content of a file, or None if it does not exist."""

    def write(self, path: str, text: str) -> None: ...

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, or an empty list if it does not exist."""

    def delete(self, path: str) -> None:
        """Delete a file, or a directory and its contents."""


class LocalFiles:
    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(each.name for each in Path(path).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, path: str) -> None:
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)


class SparkFiles:
    """Any file system that Spark supports."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark

    def _file_system_of(self, path: str) -> tuple[Any, Any]:
        where = self._spark._jvm.org.apache.hadoop.fs.Path(path)
        return where.getFileSystem(self._spark._jsc.hadoopConfiguration()), where

    def exists(self, path: str) -> bool:
        system, where = self._file_system_of(path)
        return bool(system.exists(where))

    def read(self, path: str) -> str | None:
        system, where = self._file_system_of(path)
        if not system.exists(where):
            return None
        stream = system.open(where)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        system, where = self._file_system_of(path)
        stream = system.create(where, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def names(self, path: str) -> list[str]:
        system, where = self._file_system_of(path)
        if not system.exists(where):
            return []
        return sorted(each.getPath().getName() for each in system.listStatus(where))

    def delete(self, path: str) -> None:
        system, where = self._file_system_of(path)
        system.delete(where, True)


# ---------------------------------------------------------------------------------- the topology


def check_topology(app: Application, sink: Sink, files: FileSystem) -> None:
    """Refuse a checkpoint of another topology, and record the topology of a new one.

    State can only be read by the topology that wrote it.
    """
    path = checkpoint(app, sink)
    now = topology([sink]) + "\n"
    before = files.read(path + TOPOLOGY) if files.exists(path) else None
    if before is None:
        files.write(path + TOPOLOGY, now)
    elif before != now:
        raise TopologyError(
            f"App {app.name!r}, topic {sink.topic!r}: the checkpoint in {path} was written by "
            f"a different topology. Restore that topology, rename the app, or start over with "
            f"app.reset() or kafka-streams-application-reset.\n"
            f"{topology_diff(before.splitlines(), now.splitlines())}"
        )


def topology_diff(before: Sequence[str], now: Sequence[str]) -> str:
    lines = difflib.unified_diff(before, now, "before", "now", n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith("@@"))


# -------------------------------------------------------------------------------------- the lock


class AppLock:
    """Lock that allows one run of an application at a time on a machine.

    The kernel releases the lock when the process ends.
    """

    def __init__(self, state_dir: str, name: str) -> None:
        self._name = name
        self.path = local_directory(state_dir, name) / LOCK
        self._file: Any = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            UserError: Another process holds the lock.
        """
        import fcntl

        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("a+", encoding="ascii")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            pid = file.read().strip()
            file.close()
            raise UserError(
                f"App {self._name!r} is already running (process {pid or 'unknown'}, "
                f"{self.path}). Stop it first, or give this app another name."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
