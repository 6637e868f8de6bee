"""Files that an application keeps between runs, and the lock that guards them.

    STATE_DIR/APP/TOPIC/            Spark's checkpoint of the query that writes TOPIC: its source
                                    offsets and state (RocksDB, and a changelog for each batch)
    STATE_DIR/APP/TOPIC.topology    topology of the checkpoint; a change is refused unless the
                                    checkpoint survives it (see `evolution`)
    STATE_DIR/APP/TOPIC.sources     how topics reach the operators with state; missing if Spark
                                    knows the checkpoint's sources by their order, not by name
    STATE_DIR/APP/TOPIC.store       the topic's table for interactive queries (see `store`)
    STATE_DIR/APP/~lock             locked while the application runs; not a valid topic name

STATE_DIR is a local path, or a URL of one of Spark's file systems (`s3a://…`, `hdfs://…`). For a
URL, the lock and the stores are in this machine's default directory. That is safe: the broker
fences a second run by its transactional ID, and a store can be rebuilt from its topic.

With Spark Connect, STATE_DIR is a path or URL of the server. There the topology is a directory with
a text file, because only DataFrames can write on the server.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ottla.base.errors import UserError
from ottla.spark.spark_connect import is_connect
from ottla.streams.application import Application
from ottla.streams.checkpoint_log import read_log
from ottla.streams.errors import TopologyError
from ottla.streams.evolution import (
    Change,
    SourceNames,
    Stored,
    change_between,
    from_text,
    leave,
    shape_of,
    to_text,
)
from ottla.streams.operators.topics import Sink
from ottla.streams.plan.explain import topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPOLOGY = ".topology"
SOURCES = ".sources"
STORE = ".store"
LOCK = "~lock"
PARTS = "part-*"
"""Names of the files of a directory that a DataFrame has written."""


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
            files = sorted(Path(path).glob(PARTS)) if Path(path).is_dir() else [Path(path)]
            return "".join(each.read_text(encoding="utf-8") for each in files)
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.new")
        temporary.write_text(text, encoding="utf-8")
        if file.is_dir():
            shutil.rmtree(file)
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
    """Any file system that Spark supports, through the JVM of a classic session."""

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
        if system.getFileStatus(where).isDirectory():
            names = [name for name in self.names(path) if fnmatch.fnmatch(name, PARTS)]
            return "".join(self.read(f"{path}/{name}") or "" for name in names)
        stream = system.open(where)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        system, where = self._file_system_of(path)
        if system.exists(where):
            system.delete(where, True)
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


class ServerFiles:
    """Any file system of a Spark Connect server, through DataFrames."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def exists(self, path: str) -> bool:
        from pyspark.errors import AnalysisException

        try:
            _ = self._spark.read.format("binaryFile").load(path).schema
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return False
        return True

    def read(self, path: str) -> str | None:
        if not self.exists(path):
            return None
        rows = self._spark.read.text(path, wholetext=True).collect()
        return "".join(row.value for row in rows)

    def write(self, path: str, text: str) -> None:
        rows = self._spark.createDataFrame([(text.removesuffix("\n"),)], "value string")
        rows.coalesce(1).write.mode("overwrite").text(path)

    def names(self, path: str) -> list[str]:
        raise UserError(_NO_DELETE.format(path=path))

    def delete(self, path: str) -> None:
        raise UserError(_NO_DELETE.format(path=path))


_NO_DELETE = (
    "{path} is on a Spark Connect server, which cannot list and delete files. Delete the directory "
    "there, or reset the application with a session without Spark Connect."
)


def files_of_session(state_dir: str, spark: SparkSession) -> FileSystem:
    """Return the file system on which a session keeps its checkpoints."""
    if is_connect(spark):
        is_here = "SPARK_LOCAL_REMOTE" in os.environ  # set by PySpark for remote("local[…]")
        if is_here and not is_remote(state_dir):
            return LocalFiles()
        return ServerFiles(spark)
    return SparkFiles(spark) if is_remote(state_dir) else LocalFiles()


# ---------------------------------------------------------------------------------- the topology


def check_topology(app: Application, sink: Sink, files: FileSystem) -> Change | None:
    """Refuse a checkpoint of another topology, and record the topology of a new one.

    State can only be read by the operators that wrote it, but a query may gain and lose topics.

    Returns:
        The topics that the query gains and loses, or None if the topology is the checkpoint's.
    """
    path = checkpoint(app, sink)
    now, shape = topology([sink]) + "\n", shape_of(sink)
    before = files.read(path + TOPOLOGY) if files.exists(path) else None
    if before is None:
        # In this order: without a topology, the checkpoint is still a new one after a crash.
        files.write(path + SOURCES, to_text(None if shape is None else Stored(shape, {})))
        files.write(path + TOPOLOGY, now)
        return None
    if before == now:
        return None
    sources = files.read(path + SOURCES)
    stored = from_text(sources)
    at = f"App {app.name!r}, topic {sink.topic!r}"
    change = None if stored is None or shape is None else change_between(stored.shape, shape)
    if stored is None or shape is None or change is None:
        old = "" if sources is not None else _UNNAMED
        raise TopologyError(
            f"{at}: the checkpoint in {path} was written by a different topology.{old} Restore "
            "that topology, rename the app, or start over with app.reset() or "
            "kafka-streams-application-reset.\n"
            f"{topology_diff(before.splitlines(), now.splitlines())}"
        )
    left = stored.left
    if change.lost:
        left = leave(change.lost, left, _last_offsets(files, path, at, change.lost))
    files.write(path + SOURCES, to_text(Stored(shape, left)))
    files.write(path + TOPOLOGY, now)
    return change


_UNNAMED = (
    " It was written by Ottla 0.1, which did not name its sources, so the query cannot gain or "
    "lose topics."
)


def _last_offsets(files: FileSystem, path: str, at: str, lost: Sequence[str]) -> Mapping[str, Any]:
    """Return the offsets of the last batch, by the names of the sources.

    Spark would repeat a batch that is not committed without the topics that are lost.
    """
    topics = ", ".join(lost)
    if isinstance(files, ServerFiles):
        raise TopologyError(
            f"{at}: the query cannot lose {topics}, because the checkpoint in {path} is on a Spark "
            "Connect server. Change the application in a session without Spark Connect."
        )
    log = read_log(files, path)
    if log.unfinished is not None:
        raise TopologyError(
            f"{at}: the query cannot lose {topics} yet, because it was stopped within a batch. "
            "Start the application with its former topology, and stop it when its lag is 0."
        )
    return {} if log.committed is None else log.committed.offsets


def source_names(app: Application, sink: Sink, files: FileSystem) -> SourceNames | None:
    """Return the names of a query's sources, or None if Spark does not know them by name."""
    stored = from_text(files.read(checkpoint(app, sink) + SOURCES))
    return None if stored is None else SourceNames(stored.left)


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
