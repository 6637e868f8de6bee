"""What an application keeps between runs, and whose it is.

    STATE_DIR/APP/TOPIC/            Spark's checkpoint of the query that writes TOPIC: what it has
                                    read, and its state (RocksDB, and a changelog for each batch)
    STATE_DIR/APP/TOPIC.topology    what it was made for; another topology is refused
    STATE_DIR/APP/TOPIC.store       the topic's table for interactive queries (see `store`)
    STATE_DIR/APP/~lock             held while the application runs; no topic has this name

STATE_DIR is a local path, or one of Spark's file systems (`s3a://…`, `hdfs://…`). There the lock
and the stores are in the default directory of this machine: brokers fence a second run by its
transactional id anyway, and a store is made again from its topic."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ottla.base.errors import UserError
from ottla.streams.errors import TopologyError
from ottla.streams.plan.explain import topology
from ottla.streams.plan.nodes import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.streams.app import App

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
    """Where the lock and the stores are."""
    return Path(default_state_dir() if is_remote(state_dir) else state_dir) / name


def checkpoint(app: App, sink: Sink) -> str:
    return f"{app_directory(app.state_dir, app.name)}/{sink.topic}"


class Files(Protocol):
    """The little that is asked of a file system."""

    def exists(self, path: str) -> bool: ...

    def read(self, path: str) -> str | None:
        """None: there is no such file."""

    def write(self, path: str, text: str) -> None: ...

    def names(self, path: str) -> list[str]:
        """Of what is in a directory; none if there is no such."""

    def delete(self, path: str) -> None:
        """A file, or a directory with all in it."""


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
        hidden = file.with_name(f".{file.name}.new")
        hidden.write_text(text, encoding="utf-8")
        hidden.replace(file)

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
    """Any file system that Spark knows."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark

    def _at(self, path: str) -> tuple[Any, Any]:
        where = self._spark._jvm.org.apache.hadoop.fs.Path(path)
        return where.getFileSystem(self._spark._jsc.hadoopConfiguration()), where

    def exists(self, path: str) -> bool:
        system, where = self._at(path)
        return bool(system.exists(where))

    def read(self, path: str) -> str | None:
        system, where = self._at(path)
        if not system.exists(where):
            return None
        stream = system.open(where)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        system, where = self._at(path)
        stream = system.create(where, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def names(self, path: str) -> list[str]:
        system, where = self._at(path)
        if not system.exists(where):
            return []
        return sorted(each.getPath().getName() for each in system.listStatus(where))

    def delete(self, path: str) -> None:
        system, where = self._at(path)
        system.delete(where, True)


# ---------------------------------------------------------------------------------- the topology


def check_topology(app: App, sink: Sink, files: Files) -> None:
    """An old checkpoint's state means something for its own topology only."""
    path = checkpoint(app, sink)
    now = topology([sink]) + "\n"
    before = files.read(path + TOPOLOGY) if files.exists(path) else None
    if before is None:
        files.write(path + TOPOLOGY, now)
    elif before != now:
        raise TopologyError(
            f"App {app.name!r}, topic {sink.topic!r}: the checkpoint in {path} was made by "
            f"another topology. Change it back, give the app another name, or begin anew with "
            f"app.reset() or kafka-streams-application-reset.\n"
            f"{changes(before.splitlines(), now.splitlines())}"
        )


def changes(before: Sequence[str], now: Sequence[str]) -> str:
    lines = difflib.unified_diff(before, now, "before", "now", n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith("@@"))


# -------------------------------------------------------------------------------------- the lock


class AppLock:
    """One run of an application at a time on a machine; the kernel frees it with the process."""

    def __init__(self, state_dir: str, name: str) -> None:
        self._name = name
        self.path = local_directory(state_dir, name) / LOCK
        self._file: Any = None

    def take(self) -> None:
        """Raises UserError while another process has it."""
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
                f"App {self._name!r} is running already (process {pid or 'unknown'}, "
                f"{self.path}): stop it first, or give this one another name."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def free(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
