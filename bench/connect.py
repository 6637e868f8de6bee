"""Connect: from a line to the sink, file to topic, topic to Parquet, and memory.

The worker is a process of its own, and so is the broker. Latency is of single lines, with nothing
else to do. Throughput is of 100-byte lines that are there already."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure import Figure, resident_bytes
from ottla.testing.broker import HOST, BrokerProcess

ROOT = Path(__file__).parents[1]
COMMAND = "from ottla.cli.connect_standalone import main; main()"
LINE_BYTES = 100
MEGABYTES = 100
LATENCIES = 60
PATIENCE_S = 300.0


class _Worker:
    def __init__(
        self, folder: Path, bootstrap: str, port: int, *connectors: dict[str, str]
    ) -> None:
        worker = {
            "bootstrap.servers": bootstrap,
            "key.converter": "StringConverter",
            "value.converter": "StringConverter",
            "offset.storage.file.filename": str(folder / "offsets"),
            "listeners": f"http://127.0.0.1:{port}",
            "spark.master": "local[2]",
        }
        files = []
        for n, given in enumerate([worker, *connectors]):
            path = folder / f"{n}.properties"
            path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
            files.append(str(path))
        self._port = port
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *files, "--log-level", "warning"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            cwd=folder,
        )

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=60) as answer:
            return json.load(answer)

    def resident_mb(self) -> float:
        """With its children: Spark's Java is one."""
        pids = [self.process.pid]
        listed = subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        pids += [int(each) for each in listed.stdout.split()]
        return sum(resident_bytes(each) for each in pids) / 1e6

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def _wait(look: Any, what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.002)


@contextmanager
def _scene() -> Iterator[tuple[Path, str, int]]:
    import socket

    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        folder = Path(name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with BrokerProcess(folder / "broker") as broker:
            yield folder, f"{HOST}:{broker.port}", port


def _source(folder: Path, topic: str) -> dict[str, str]:
    return {"name": "source", "connector.class": "FileStreamSource", "topic": topic,
            "file": str(folder / "in.txt")}  # fmt: skip


def _latency() -> Iterator[Figure]:
    with _scene() as (folder, bootstrap, port):
        sink = {"name": "sink", "connector.class": "FileStreamSink", "topics": "lines",
                "file": str(folder / "out.txt")}  # fmt: skip
        source, target = folder / "in.txt", folder / "out.txt"
        source.write_text("first\n")
        worker = _Worker(folder, bootstrap, port, _source(folder, "lines"), sink)
        try:
            _wait(lambda: target.exists() and target.stat().st_size == 6, "the first line")
            taken = []
            for n in range(LATENCIES):
                began = time.monotonic()
                with open(source, "a") as file:
                    file.write(f"line {n}\n")
                size = source.stat().st_size
                _wait(lambda size=size: target.stat().st_size == size, f"line {n}")
                taken.append((time.monotonic() - began) * 1000)
                time.sleep(0.02)
            taken.sort()
            yield Figure(
                "connect: appended line to sink, p50", statistics.median(taken), "ms", 1000
            )
            yield Figure("connect: appended line to sink, p99", taken[int(len(taken) * 0.99)], "ms")
            yield Figure(
                "connect: memory of a worker of two connectors", worker.resident_mb(), "MB"
            )
        finally:
            worker.close()


def _throughput() -> Iterator[Figure]:
    from ottla.base.types import TopicPartition
    from ottla.client.admin import Admin, OffsetSpec

    with _scene() as (folder, bootstrap, port):
        lines = MEGABYTES * 1_000_000 // LINE_BYTES
        line = "x" * (LINE_BYTES - 1) + "\n"
        (folder / "in.txt").write_text(line * lines)
        began = time.monotonic()
        worker = _Worker(folder, bootstrap, port, _source(folder, "bulk"))
        wanted = (folder / "in.txt").stat().st_size

        def position() -> int:
            try:
                told = worker.ask("/connectors/source/offsets")["offsets"]
            except OSError:
                return 0
            return int(told[0]["offset"]["position"]) if told else 0

        try:
            _wait(lambda: position() > 0, "the first batch")
            began, first = time.monotonic(), position()
            _wait(lambda: position() == wanted, "the file")
            took_s = time.monotonic() - began
            yield Figure("connect: file to topic", (wanted - first) / 1e6 / took_s, "MB/s")
            yield Figure("connect: memory, file to topic", worker.resident_mb(), "MB")
        finally:
            worker.close()
        yield from _parquet(folder, bootstrap, lines)
        with Admin(bootstrap) as admin:
            tp = TopicPartition("bulk", 0)
            assert (admin.list_offsets({tp: OffsetSpec.LATEST})[tp].offset or 0) >= lines


def _parquet(folder: Path, bootstrap: str, lines: int) -> Iterator[Figure]:
    """The same records, as files that Spark and everyone else reads."""
    import pyarrow.dataset as ds

    from ottla.connect.plugins import UnknownPlugin, connector_class

    try:
        connector_class("SparkSink")
    except UnknownPlugin:
        return
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    target = folder / "parquet"
    sink = {"name": "parquet", "connector.class": "SparkSink", "topics": "bulk",
            "format": "parquet", "path": str(target)}  # fmt: skip
    worker = _Worker(folder, bootstrap, port, sink)

    def rows() -> int:
        files = [str(each) for each in target.glob("*.parquet")] if target.exists() else []
        return int(ds.dataset(files).count_rows()) if files else 0

    try:
        _wait(lambda: rows() > 0, "the first file")
        began, first = time.monotonic(), rows()
        _wait(lambda: rows() >= lines, "the files")
        took_s = time.monotonic() - began
        moved_mb = (lines - first) * LINE_BYTES / 1e6
        yield Figure("connect: topic to Parquet, local[2]", moved_mb / took_s, "MB/s")
        yield Figure("connect: memory, topic to Parquet", worker.resident_mb(), "MB")
    finally:
        worker.close()


def run() -> Iterator[Figure]:
    yield from _latency()
    yield from _throughput()
