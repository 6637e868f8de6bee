"""Benchmarks of Connect: latency from file to sink, throughput, and memory of workers.

The worker and the broker run in separate processes. Latency is that of single lines on an otherwise
idle worker. Throughput is that of 100-byte lines that exist before the worker starts, from file to
topic and from topic to Parquet. Both are measured with tasks in threads and with tasks on Spark.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.measure import Figure, resident_bytes
from ottla.testing.broker import HOST, BrokerProcess

ROOT = Path(__file__).parents[1]
COMMAND = "from ottla.cli.connect_standalone import main; main()"
LINE_BYTES = 100
MEGABYTES = 40
LATENCIES = 100
ENGINES = {"threads": "", "spark": ", on Spark"}
"""Values of task.engine, and how figures name them."""
PATIENCE_S = 300.0


class _Worker:
    def __init__(
        self, folder: Path, bootstrap: str, port: int, engine: str, *connectors: dict[str, str]
    ) -> None:
        worker = {
            "bootstrap.servers": bootstrap,
            "key.converter": "StringConverter",
            "value.converter": "StringConverter",
            "offset.storage.file.filename": str(folder / "offsets"),
            "listeners": f"http://127.0.0.1:{port}",
            "spark.master": "local[2]",
            "task.engine": engine,
        }
        files = []
        for n, properties in enumerate([worker, *connectors]):
            path = folder / f"{n}.properties"
            path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
            files.append(str(path))
        self._port = port
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *files, "--log-level", "warning"],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            cwd=folder,
        )

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=60) as response:
            return json.load(response)

    def resident_mb(self) -> float:
        """Return the resident memory of the worker, Spark's JVM and the processes of tasks."""
        pids = [self.process.pid]
        for pid in pids:
            listed = subprocess.run(
                ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
            )
            pids += [int(each) for each in listed.stdout.split()]
        total = 0
        for pid in pids:
            with suppress(FileNotFoundError):  # the process has ended since
                total += resident_bytes(pid)
        return total / 1e6

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def _wait(condition: Any, what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.002)


@contextmanager
def _broker() -> Iterator[tuple[Path, str, int]]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        folder = Path(name)
        with BrokerProcess(folder / "broker") as broker:
            yield folder, f"{HOST}:{broker.port}", _free_port()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _source(folder: Path, topic: str) -> dict[str, str]:
    return {"name": "source", "connector.class": "FileStreamSource", "topic": topic,
            "file": str(folder / "in.txt")}  # fmt: skip


class _Lines:
    """A worker that copies the lines of a file to another file, and the times they took."""

    def __init__(self, folder: Path, bootstrap: str, engine: str) -> None:
        folder.mkdir()
        self._source, self._target = folder / "in.txt", folder / "out.txt"
        self._source.write_text("first\n")
        sink = {"name": "sink", "connector.class": "FileStreamSink", "topics": engine,
                "file": str(self._target)}  # fmt: skip
        source = _source(folder, engine)
        self.worker = _Worker(folder, bootstrap, _free_port(), engine, source, sink)
        self.taken_ms: list[float] = []

    def wait(self) -> None:
        size = self._source.stat().st_size
        _wait(lambda: self._target.exists() and self._target.stat().st_size == size, "a line")

    def add(self) -> None:
        began = time.monotonic()
        with open(self._source, "a") as file:
            file.write(f"line {len(self.taken_ms)}\n")
        self.wait()
        self.taken_ms.append((time.monotonic() - began) * 1000)


def _latency() -> Iterator[Figure]:
    """Measure both engines at once, line by line in turn, so that other load affects both."""
    with _broker() as (folder, bootstrap, _):
        lines = {engine: _Lines(folder / engine, bootstrap, engine) for engine in ENGINES}
        try:
            for each in lines.values():
                each.wait()
            for _ in range(LATENCIES):
                for each in lines.values():
                    each.add()
                    time.sleep(0.02)
            for engine, place in ENGINES.items():
                each = lines[engine]
                taken = sorted(each.taken_ms)
                name = f"connect: appended line to sink{place}"
                yield Figure(f"{name}, p50", statistics.median(taken), "ms", 1000)
                yield Figure(f"{name}, p99", taken[int(len(taken) * 0.99)], "ms")
                mb = each.worker.resident_mb()
                yield Figure(f"connect: memory of a worker of two connectors{place}", mb, "MB")
        finally:
            for each in lines.values():
                each.worker.close()


def _offset(worker: _Worker, name: str, field: str) -> int:
    """Return the offset that a connector reports, or 0 if it reports none."""
    try:
        offsets = worker.get(f"/connectors/{name}/offsets")["offsets"]
    except OSError:
        return 0
    return int(offsets[0]["offset"][field]) if offsets else 0


def _rate(position: Callable[[], int], end: int) -> float:
    """Return the increase of a counter per second, from the first batch to the end."""
    _wait(lambda: position() > 0, "the first batch")
    began, first = time.monotonic(), position()
    _wait(lambda: position() >= end, "the end")
    return (end - first) / (time.monotonic() - began)


def _throughput(engine: str, place: str) -> Iterator[Figure]:
    with _broker() as (folder, bootstrap, port):
        count = MEGABYTES * 1_000_000 // LINE_BYTES
        filling = "x" * (LINE_BYTES - len('{"n": 1234567, "text": ""}\n'))
        with open(folder / "in.txt", "w") as file:
            for n in range(1_000_000, 1_000_000 + count):
                file.write(f'{{"n": {n}, "text": "{filling}"}}\n')
        size = (folder / "in.txt").stat().st_size
        worker = _Worker(folder, bootstrap, port, engine, _source(folder, "bulk"))
        try:
            rate = _rate(lambda: _offset(worker, "source", "position"), size)
            yield Figure(f"connect: file to topic{place}", rate / 1e6, "MB/s")
            yield Figure(f"connect: memory, file to topic{place}", worker.resident_mb(), "MB")
        finally:
            worker.close()
        json_values = {"topics": "bulk", "value.converter": "JsonConverter",
                       "value.converter.schemas.enable": "false"}  # fmt: skip
        lake = {"name": "lake", "connector.class": "ParquetSink", "path": str(folder / "lake"),
                "flush.size": str(count // 4)}  # fmt: skip
        table = {"name": "table", "connector.class": "SparkSink", "format": "parquet",
                 "path": str(folder / "table"),
                 "consumer.override.max.poll.records": "100000"}  # fmt: skip
        sinks = [(f"ParquetSink{place}", lake)]
        if engine == "threads":
            # SparkSink runs in the worker with either engine.
            sinks.append(("SparkSink on local[2]", table))
        for title, sink in sinks:
            worker = _Worker(folder, bootstrap, _free_port(), engine, sink | json_values)
            try:
                rate = _rate(lambda: _offset(worker, sink["name"], "kafka_offset"), count)  # noqa: B023
                mb_s = rate * LINE_BYTES / 1e6
                yield Figure(f"connect: topic to Parquet, {title}", mb_s, "MB/s")
                yield Figure(f"connect: memory, {title}", worker.resident_mb(), "MB")
            finally:
                worker.close()


def _ten_connectors(engine: str, place: str) -> Iterator[Figure]:
    """Measure a worker with ten connectors: five pipelines from file to file."""
    with _broker() as (folder, bootstrap, port):
        connectors = []
        for n in range(5):
            source, target = folder / f"in{n}.txt", folder / f"out{n}.txt"
            source.write_text("first\n")
            connectors += [
                {"name": f"source-{n}", "connector.class": "FileStreamSource",
                 "topic": f"lines-{n}", "file": str(source)},
                {"name": f"sink-{n}", "connector.class": "FileStreamSink",
                 "topics": f"lines-{n}", "file": str(target)},
            ]  # fmt: skip
        worker = _Worker(folder, bootstrap, port, engine, *connectors)
        try:
            for n in range(5):
                target = folder / f"out{n}.txt"
                _wait(lambda target=target: target.exists() and target.stat().st_size, "a line")
            yield Figure(
                f"connect: memory of a worker of ten connectors{place}", worker.resident_mb(), "MB"
            )
        finally:
            worker.close()


def run() -> Iterator[Figure]:
    yield from _latency()
    for measure in (_ten_connectors, _throughput):
        for engine, place in ENGINES.items():
            yield from measure(engine, place)
