"""A group of `connect-distributed` workers, as a user runs them.

The workers are processes that are killed, suspended and restarted; any of them serves REST."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.connect.workers import free_port, values, wait_for

from ottla.testing.broker_thread import BrokerThread

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "connect" / "connect-distributed.properties"
COMMAND = "from ottla.cli.connect_distributed import main; main()"
TAKE_OVER_S = 15.0


class WorkerProcess:
    """One worker of the example's group, with its own port."""

    def __init__(self, folder: Path, bootstrap: str, name: str) -> None:
        self.port = free_port()
        self.file = folder / f"{name}.properties"
        text = EXAMPLE.read_text().replace("localhost:9092", bootstrap)
        text = text.replace("localhost:8083", f"127.0.0.1:{self.port}")
        self.file.write_text(
            f"{text}\nstate.dir={folder / 'state'}\nsession.timeout.ms=6000\n"
            "heartbeat.interval.ms=500\nscheduled.rebalance.max.delay.ms=1000\n"
            "offset.storage.partitions=3\nstatus.storage.partitions=1\ntask.engine=threads\n"
        )
        self._folder = folder
        self._log = open(folder / f"{name}.log", "ab")  # noqa: SIM115
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = os.pathsep.join(
            filter(None, (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")))
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(self.file)],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": path},
            stderr=self._log,
        )

    @property
    def worker_id(self) -> str:
        return f"127.0.0.1:{self.port}"

    def send_signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=40)
        try:
            connection.request(method, path, json.dumps(body).encode() if body else None)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        return response.status, json.loads(text) if text else None

    def is_up(self) -> bool:
        try:
            return self.ask("GET", "/connectors")[0] == 200
        except OSError:
            return False

    def owners(self) -> dict[str, str]:
        """Return the worker of each running task."""
        found = {}
        for name, each in self.ask("GET", "/connectors?expand=status")[1].items():
            for task in each["status"]["tasks"]:
                if task["state"] == "RUNNING":
                    found[f"{name}-{task['id']}"] = task["worker_id"]
        return found


class Group:
    def __init__(self, folder: Path, broker: BrokerThread, count: int) -> None:
        self.folder, self.broker = folder, broker
        self.workers = [WorkerProcess(folder, broker.bootstrap, f"w{n}") for n in range(count)]
        for each in self.workers:
            each.start()
        for each in self.workers:
            wait_for(each.is_up, "a worker")

    def files(self, count: int) -> None:
        """Create `count` pipelines from file to topic to file, on each worker in turn."""
        for n in range(count):
            (self.folder / f"in{n}.txt").write_text("")
            source = {"connector.class": "FileStreamSource", "topic": f"files-{n}",
                      "file": str(self.folder / f"in{n}.txt")}  # fmt: skip
            sink = {"connector.class": "FileStreamSink", "topics": f"files-{n}",
                    "file": str(self.folder / f"out{n}.txt")}  # fmt: skip
            worker = self.workers[n % len(self.workers)]
            for name, config in ((f"source-{n}", source), (f"sink-{n}", sink)):
                status, reported = worker.ask(
                    "POST", "/connectors", {"name": name, "config": config}
                )
                assert status == 201, reported

    def append(self, n: int, text: str) -> None:
        with open(self.folder / f"in{n}.txt", "a") as file:
            file.write(text)

    def text(self, n: int, end: str = "out") -> bytes:
        path = self.folder / f"{end}{n}.txt"
        return path.read_bytes() if path.exists() else b""

    def wait_until_equal(self, count: int) -> None:
        for n in range(count):
            wait_for(lambda n=n: self.text(n) == self.text(n, "in"), f"file {n}")  # type: ignore[misc]

    def close(self) -> None:
        for each in self.workers:
            each.kill()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with BrokerThread() as broker:
        made = Group(tmp_path, broker, 3)
        yield made
        made.close()


@pytest.mark.timeout(240)
def test_a_dead_workers_connectors_are_taken_over_and_rest_answers_on_any(group: Group) -> None:
    group.files(3)
    first, second, third = group.workers
    wait_for(lambda: len(first.owners()) == 6, "all tasks run")
    wait_for(lambda: set(Counter(first.owners().values()).values()) == {2}, "evenly")
    for n in range(3):
        group.append(n, "one\ntwo\n")
    group.wait_until_equal(3)
    levels_reach_all_workers(group)
    first.send_signal(signal.SIGKILL)
    killed_at = time.monotonic()
    for n in range(3):
        group.append(n, "three\n")
    group.wait_until_equal(3)
    assert time.monotonic() - killed_at < TAKE_OVER_S
    wait_for(lambda: first.worker_id not in third.owners().values())
    assert third.owners() == second.owners()
    for worker in (second, third):
        assert worker.ask("PUT", "/connectors/source-0/pause")[0] == 202
        assert worker.ask("PUT", "/connectors/source-0/resume")[0] == 202
    assert second.stop() == 0
    group.append(0, "four\n")
    group.wait_until_equal(3)


def levels_reach_all_workers(group: Group) -> None:
    """Check that `scope=cluster` reaches all workers, and that the default scope is one worker."""
    path = "/admin/loggers/ottla.level"
    for level, asked in zip(("DEBUG", "ERROR", "WARN"), group.workers, strict=True):
        assert asked.ask("PUT", f"{path}?scope=cluster", {"level": level}) == (204, None)
        for each in group.workers:
            wait_for(lambda each=each, level=level: level_at(each, path) == level, level)  # type: ignore[misc]
    own = "/admin/loggers/ottla.own"
    assert group.workers[0].ask("PUT", own, {"level": "DEBUG"}) == (200, ["ottla.own"])
    assert level_at(group.workers[0], own) == "DEBUG"
    assert level_at(group.workers[1], own) is None


def level_at(worker: WorkerProcess, path: str) -> str | None:
    status, reported = worker.ask("GET", path)
    return reported["level"] if status == 200 else None


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_one_killed_and_one_asleep_lose_and_double_nothing(group: Group) -> None:
    """Each round kills one worker and suspends another for ten seconds, longer than the session.

    Lines are written all the while, and the remaining worker must answer REST requests."""
    chance = random.Random(10)
    count, take_overs = 3, []
    group.files(count)
    wait_for(lambda: len(group.workers[0].owners()) == 2 * count, "all tasks run")
    pool = ThreadPoolExecutor(1)
    for turn in range(6):
        asleep, dying, awake = chance.sample(group.workers, 3)
        began = time.monotonic()
        asleep.send_signal(signal.SIGSTOP)
        dying.send_signal(signal.SIGKILL)
        dying.process.wait()  # type: ignore[union-attr]
        waiting = set(range(count))
        # Request a change meanwhile: it completes once there is a leader again.
        changing = pool.submit(awake.ask, "PUT", f"/connectors/source-{turn % count}/resume")
        for step in range(60):
            for n in range(count):
                group.append(n, f"{turn} {step} {n} {chance.random()}\n")
            status, _ = awake.ask("GET", "/connectors?expand=status")
            assert status == 200
            arrived = {n for n in waiting if f"{turn} 0 {n} ".encode() in group.text(n)}
            if arrived:
                waiting -= arrived
                take_overs.append(time.monotonic() - began)
            time.sleep(0.25)
        assert not waiting, f"not taken over: {waiting}"
        assert changing.result(60) == (202, None)
        asleep.send_signal(signal.SIGCONT)
        dying.start()
        status, reported = awake.ask("PUT", f"/connectors/sink-{turn % count}/pause")
        assert status == 202, reported
        status, reported = awake.ask("PUT", f"/connectors/sink-{turn % count}/resume")
        assert status == 202, reported
        wait_for(dying.is_up)
        group.wait_until_equal(count)
        wait_for(lambda: len(asleep.owners()) == 2 * count, "all tasks run")  # noqa: B023
    for n in range(count):
        assert values(group.broker.bootstrap, f"files-{n}") == [
            json.dumps({"schema": {"type": "string", "optional": False}, "payload": line},
                       separators=(",", ":")).encode()
            for line in group.text(n, "in").decode().splitlines()
        ]  # fmt: skip
    print("take-overs after", [f"{each:.1f}" for each in take_overs], "s")
    assert max(take_overs) < TAKE_OVER_S


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_rolling_restart_loses_nothing(group: Group) -> None:
    group.files(2)
    wait_for(lambda: len(group.workers[0].owners()) == 4, "all tasks run")
    for turn, worker in enumerate(group.workers):
        group.append(0, f"{turn} before\n")
        assert worker.stop() == 0
        group.append(1, f"{turn} meanwhile\n")
        worker.start()
        wait_for(worker.is_up)
        group.append(0, f"{turn} after\n")
        group.wait_until_equal(2)
