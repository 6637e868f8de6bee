"""Workers inside the test's process, and helpers to query them and to read topics."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ottla.base.types import TopicPartition
from ottla.client.admin import Admin, OffsetSpec
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.connect.standalone import StandaloneHerder
from ottla.connect.states import State
from ottla.connect.worker_config import WorkerConfig

ROOT = Path(__file__).parents[2]
PATIENCE_S = 90.0
SPARK_PATIENCE_S = 240.0
T = TypeVar("T")


def wait_for(look: Callable[[], T], what: str = "", patience_s: float = PATIENCE_S) -> T:
    """Call `look` until it returns a true value, and return that."""
    until = time.monotonic() + patience_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < until, f"waited in vain: {what}, {found!r}"
        time.sleep(0.02)


def worker_properties(bootstrap: str, folder: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "key.converter": "StringConverter",
        "value.converter": "StringConverter",
        "offset.storage.file.filename": str(folder / "connect.offsets"),
        "listeners": "http://127.0.0.1:0",
        "task.engine": "threads",
        "task.restart.backoff.ms": "100",
        "offset.storage.topic": f"offsets-{folder.name}",
    }


class Standalone:
    """A standalone worker with helpers for tests."""

    def __init__(self, bootstrap: str, folder: Path, **properties: str) -> None:
        self.bootstrap, self.folder = bootstrap, folder
        given = worker_properties(bootstrap, folder)
        given |= {name.replace("_", "."): value for name, value in properties.items()}
        self.herder = StandaloneHerder(WorkerConfig.of(given))
        self.herder.start()
        self._thread = threading.Thread(target=self.herder.run, daemon=True)
        self._thread.start()

    def put(self, name: str, kind: str, **given: Any) -> None:
        properties = {key.replace("_", "."): str(value) for key, value in given.items()}
        self.herder.put({"name": name, "connector.class": kind, **properties})

    def state(self, name: str, task: int = 0) -> State:
        return self.herder.status(name).tasks[task].state

    def wait_for_state(self, name: str, state: State) -> str:
        """Wait until the connector's task is in this state, and return its trace."""
        wait_for(lambda: self.state(name) is state, f"{name} {state}")
        return self.herder.status(name).tasks[0].trace or ""

    def close(self) -> None:
        self.herder.request_stop()
        self._thread.join(30)
        self.herder.close()


class WorkerProcess:
    """`connect-standalone` or `connect-distributed` in a process of its own, driven over REST.

    Its Python can import the tests' connectors."""

    def __init__(
        self, kind: str, folder: Path, bootstrap: str, properties: Mapping[str, str], name: str = ""
    ) -> None:
        self.port = free_port()
        self.folder, self._kind = folder, kind
        self.log = folder / f"worker{name}.log"
        self._file = folder / f"worker{name}.properties"
        given = worker_properties(bootstrap, folder)
        given["listeners"] = f"http://127.0.0.1:{self.port}"
        if kind == "distributed":
            given |= {f"{each}.storage.topic": f"{each}-{folder.name}"
                      for each in ("config", "offset", "status")}  # fmt: skip
            given |= {"group.id": folder.name, "state.dir": str(folder)}
        given |= properties
        self._file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = f"from ottla.cli.connect_{self._kind} import main; main()"
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", command, str(self._file)],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
                stdout=log,
                stderr=log,
            )
        wait_for(self.is_up, "the REST API of the worker")

    def is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        try:
            return self.ask("GET", "/connectors")[0] == 200
        except OSError:
            return False

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        return response.status, json.loads(text) if text else None

    def put(self, name: str, kind: str, **given: Any) -> None:
        properties = {key.replace("_", "."): str(value) for key, value in given.items()}
        body = {"connector.class": kind, **properties}
        status, answer = self.ask("PUT", f"/connectors/{name}/config", body)
        assert status in (200, 201), answer

    def task(self, name: str, task: int = 0) -> dict[str, Any]:
        """Return the status of a task; {} if it has none yet."""
        status, found = self.ask("GET", f"/connectors/{name}/tasks/{task}/status")
        return found if status == 200 else {}

    def wait_for_state(self, name: str, state: str, task: int = 0) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.task(name, task)
            return found if found.get("state") == state else None

        found = wait_for(look, f"{name} {state}: {self.task(name, task)}", SPARK_PATIENCE_S)
        assert found is not None
        return found

    def task_pids(self, name: str, task: int = 0) -> list[int]:
        """Return the process IDs in which Spark has run a task, the current one last."""
        pattern = rf"task {re.escape(name)}-{task} runs on Spark: process (\d+)"
        return [int(each) for each in re.findall(pattern, self.log.read_text())]

    def wait_for_new_process(self, name: str, count: int) -> None:
        """Wait until Spark has run the connector's first task in more than `count` processes."""
        wait_for(
            lambda: len(self.task_pids(name)) > count, f"a process of {name}", SPARK_PATIENCE_S
        )

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    def kill(self) -> None:
        """Kill the worker with SIGKILL, and then what is left of its processes."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process = None


def send(bootstrap: str, topic: str, *values: bytes, **more: Any) -> None:
    with Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, value, **more)
        producer.flush()


def read(bootstrap: str, topic: str) -> list[Any]:
    """Return all committed records that are in the topic now."""
    with Consumer(
        bootstrap, isolation_level="read_committed", auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer, Admin(bootstrap) as admin:  # fmt: skip
        partitions = consumer.partitions_for(topic)
        ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        consumer.assign(partitions)
        found: list[Any] = []
        until = time.monotonic() + PATIENCE_S
        while any(consumer.position(tp) < (ends[tp].offset or 0) for tp in partitions):
            assert time.monotonic() < until, "a transaction stays open"
            found += consumer.poll(0.1)
        return found


def values(bootstrap: str, topic: str) -> list[bytes]:
    return [each.value for each in read(bootstrap, topic)]


def lag(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    tp = TopicPartition(topic, partition)
    with Admin(bootstrap) as admin:
        committed = admin.list_group_offsets(group)[group].get(tp)
        end = admin.list_offsets({tp: OffsetSpec.LATEST})[tp].offset or 0
    return end - (committed.offset if committed else 0)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
