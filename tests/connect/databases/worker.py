"""A broker and a worker as processes that tests can kill, and a reader of topics."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
COMMAND = "from ottla.cli.connect_standalone import main; main()"
PATIENCE_S = 180.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port: int = free.getsockname()[1]
        return port


class Worker:
    """`connect-standalone` in its own folder, with the given connector properties."""

    def __init__(self, folder: Path, bootstrap: str, *connectors: Mapping[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        worker = {
            "bootstrap.servers": bootstrap,
            "key.converter": "JsonConverter",
            "value.converter": "JsonConverter",
            "offset.storage.file.filename": str(folder / "connect.offsets"),
            "offset.flush.interval.ms": "1000",
            "listeners": f"http://localhost:{self.port}",
            "task.restart.backoff.ms": "200",
            "task.restart.backoff.max.ms": "1000",
        }
        self._files = [self._write("worker", worker)]
        self._files += [self._write(each["name"], each) for each in connectors]
        self.process: subprocess.Popen[bytes] | None = None

    def _write(self, name: str, properties: Mapping[str, str]) -> str:
        path = self.folder / f"{name}.properties"
        lines = (f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items())
        path.write_text("\n".join(lines))
        return str(path)

    def start(self) -> None:
        path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
        with open(self.folder / "worker.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *self._files],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Kill the worker and all processes of its group with SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process = None

    def rest(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"http://localhost:{self.port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=30) as response:
            text = response.read()
        return json.loads(text) if text else None

    def task(self, name: str) -> dict[str, Any]:
        try:
            tasks = self.rest(f"/connectors/{name}/status")["tasks"]
        except (urllib.error.URLError, OSError):
            return {"state": "no answer"}
        return dict(tasks[0]) if tasks else {"state": "no task"}

    def wait_for(self, name: str, state: str, trace: str = "") -> dict[str, Any]:
        """Wait until the connector's task is in this state, with this text in its trace."""
        until = time.monotonic() + PATIENCE_S
        while True:
            task = self.task(name)
            if task["state"] == state and trace in task.get("trace", ""):
                return task
            assert self.process is not None
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < until, f"{task} {self.log()}"
            time.sleep(0.05)

    def log(self) -> str:
        return (self.folder / "worker.log").read_text(errors="replace")[-3000:]


def read_topics(bootstrap: str, prefix: str) -> list[Any]:
    """Return all committed records of topics with this prefix, by topic, partition and offset."""
    from ottla import Admin, Consumer, TopicPartition

    with Admin(bootstrap) as admin:
        topics = sorted(name for name in admin.list_topics() if name.startswith(prefix))
        described = admin.describe_topics(*topics) if topics else {}
    partitions = [
        TopicPartition(topic, each.partition if hasattr(each, "partition") else number)
        for topic in topics
        for number, each in enumerate(described[topic].partitions)
    ]
    found: list[Any] = []
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        if not partitions:
            return []
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(*partitions)
        while any(consumer.position(tp) < ends[tp] for tp in partitions):
            found += consumer.poll(timeout_s=1)
    return sorted(found, key=lambda each: (each.topic, each.partition, each.offset))
