"""`connect-standalone` with the files of examples/connect, as a user runs it.

The broker, the worker process and the files are real."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.broker_thread import BrokerThread

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "connect"
FILES = (
    "connect-standalone.properties",
    "connect-file-source.properties",
    "connect-file-sink.properties",
)
COMMAND = "from ottla.cli.connect_standalone import main; main()"
PATIENCE_S = 200.0
LATENCY_S = 1.0


class Pipeline:
    """The worker of the examples, in its own folder."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.source, self.sink = folder / "test.txt", folder / "test.sink.txt"
        with socket.socket() as free:
            free.bind(("localhost", 0))
            self.port = free.getsockname()[1]
        for name in FILES:
            text = (EXAMPLES / name).read_text()
            text = text.replace("localhost:9092", bootstrap).replace(":8083", f":{self.port}")
            (folder / name).write_text(text.replace("/tmp/connect", str(folder / "connect")))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *FILES],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill the worker and all processes of its group with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            # Spark's JVM exits after its Python process; kill every process that is still left.
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def append(self, text: str) -> None:
        with open(self.source, "a") as file:
            file.write(text)

    def sink_size(self) -> int:
        return self.sink.stat().st_size if self.sink.exists() else 0

    def wait_for_sink(self, wanted: bytes | None = None) -> None:
        wanted = self.source.read_bytes() if wanted is None else wanted
        until = time.monotonic() + PATIENCE_S
        while not self.sink.exists() or self.sink.read_bytes() != wanted:
            assert self.process is not None
            assert self.process.poll() is None, "the worker ended"
            assert time.monotonic() < until, f"the sink has {self.sink.read_bytes()!r}"
            time.sleep(0.02)

    def rest(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"http://localhost:{self.port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read()
        return json.loads(text) if text else None


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with BrokerThread() as broker:
        made = Pipeline(tmp_path, broker.bootstrap)
        yield made
        made.kill()


def latencies_s(pipeline: Pipeline, count: int) -> list[float]:
    """Return the seconds from appending a line to its arrival in the sink, for each line."""
    taken = []
    for n in range(count):
        began = time.monotonic()
        pipeline.append(f"line {n}\n")
        pipeline.wait_for_sink()
        taken.append(time.monotonic() - began)
    return taken


@pytest.mark.timeout(600)
def test_lines_added_to_the_file_move_through_the_pipeline(pipeline: Pipeline) -> None:
    pipeline.source.write_text("foo\nbar\nhalf a ")
    pipeline.start()
    pipeline.wait_for_sink(b"foo\nbar\n")
    pipeline.append("line\nAnother line\n")
    pipeline.wait_for_sink()
    states = pipeline.rest("/connectors?expand=status")
    assert {name: each["status"]["tasks"][0]["state"] for name, each in states.items()} == {
        "local-file-source": "RUNNING",
        "local-file-sink": "RUNNING",
    }
    assert statistics.median(latencies_s(pipeline, 15)) < LATENCY_S
    pipeline.kill()
    pipeline.append("while nobody looked\n")
    pipeline.start()
    pipeline.wait_for_sink()
    assert pipeline.process is not None
    pipeline.process.terminate()
    assert pipeline.process.wait(timeout=120) == 0
    stored = json.loads((pipeline.folder / "connect.offsets").read_text())
    (offset,) = stored["connectors"]["local-file-source"]["offsets"]
    assert offset["partition"] == {"filename": "test.txt"}
    assert offset["offset"]["position"] == pipeline.source.stat().st_size


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_the_sink_is_the_source_after_kills_at_any_moment(pipeline: Pipeline) -> None:
    """Most kills hit while lines are copied, some while the worker starts.

    Small appends are converted one by one, large ones in columns."""
    chance = random.Random(9)
    for turn in range(24):
        pipeline.start()
        moved = pipeline.sink_size()
        if chance.random() < 0.8:
            until = time.monotonic() + PATIENCE_S
            while pipeline.sink_size() == moved and time.monotonic() < until:
                pipeline.append(f"{turn} {chance.random()}\n")
                time.sleep(0.02)
        until = time.monotonic() + chance.uniform(0, 2.5)
        while time.monotonic() < until:
            count = chance.choice((50, 50, 4_000))
            pipeline.append("".join(f"{turn} {chance.random()}\n" for _ in range(count)))
            time.sleep(chance.uniform(0, 0.05))
        pipeline.kill()
    pipeline.start()
    pipeline.wait_for_sink()
