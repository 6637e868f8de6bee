"""Ten connectors on the two executors of a Spark standalone cluster, whose processes are killed.

The master, the workers of Spark, the broker and `connect-distributed` are processes of their own.
Every line of every pipeline is compared at the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.connect.file_pipeline import FilePipeline
from tests.connect.workers import SPARK_PATIENCE_S, WorkerProcess, wait_for
from tests.spark.test_standalone import Daemon

from ottla.testing.broker import BrokerProcess

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

PIPELINES = 5
CORES = 10
"""Cores of each executor: enough for all tasks, so that one executor can run them alone."""
KILLS = 30
SEED = 21


class Cluster:
    """A master and two workers of Spark, each with one executor of the application."""

    def __init__(self, home: Path) -> None:
        package = "org.apache.spark.deploy"
        master = Daemon(
            home, "master", f"{package}.master.Master", "--host", "127.0.0.1", "--port", "0",
            "--webui-port", "0",
        )  # fmt: skip
        self._daemons = [master]
        self.url = master.said(r"Starting Spark master at (spark://\S+)")[1]
        for number in range(2):
            worker = [
                f"{package}.worker.Worker", "--cores", str(CORES), "--memory", "1g",
                "--webui-port", "0", "--host", "127.0.0.1", self.url,
            ]  # fmt: skip
            self._daemons.append(Daemon(home, f"spark-worker-{number}", *worker))
        for daemon in self._daemons[1:]:
            daemon.said("Successfully registered with master")

    def executors(self) -> list[int]:
        """Return the process IDs of the executors."""
        return [pid for daemon in self._daemons[1:] for pid in children(daemon.process.pid)]

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.stop()


def children(pid: int) -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(each) for each in listed.stdout.split()]


def executor_of(pid: int) -> int:
    """Return the executor that a task's process belongs to: the parent of PySpark's daemon."""
    for _ in range(2):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pid = int(fields[1])
    return pid


@contextmanager
def cluster(home: Path) -> Iterator[Cluster]:
    made = Cluster(home)
    try:
        yield made
    finally:
        made.stop()


def connect_worker(folder: Path, bootstrap: str, master: str) -> WorkerProcess:
    properties = {
        "task.engine": "spark", "spark.master": master, "spark.executor.cores": str(CORES),
        "spark.cores.max": str(2 * CORES), "spark.executor.memory": "512m",
        # Spark would otherwise place all tasks on the executor that registers first.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "session.timeout.ms": "6000", "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0", "offset.storage.partitions": "3",
        "status.storage.partitions": "1", "task.restart.backoff.max.ms": "1000",
    }  # fmt: skip
    return WorkerProcess("distributed", folder, bootstrap, properties)


def test_tasks_of_a_killed_executor_run_on_the_other_one(tmp_path: Path) -> None:
    with BrokerProcess() as broker, cluster(tmp_path) as spark:
        worker = connect_worker(tmp_path, broker.bootstrap, spark.url)
        worker.start()
        try:
            pipelines = [FilePipeline(worker, f"p{n}") for n in range(PIPELINES)]
            for each in pipelines:
                each.add(50)
            for each in pipelines:
                each.wait()
            names = [name for each in pipelines for name in each.connectors]
            homes = {name: executor_of(worker.task_pids(name)[-1]) for name in names}
            assert len(set(homes.values())) == 2, "Spark uses both executors"
            victim = homes[names[0]]
            moved = [name for name in names if homes[name] == victim]
            counts = {name: len(worker.task_pids(name)) for name in names}
            os.kill(victim, signal.SIGKILL)
            for each in pipelines:
                each.add(50)
            for name in moved:
                worker.wait_for_new_process(name, counts[name])
            for each in pipelines:
                each.wait()
            for name in names:
                worker.wait_for_state(name, "RUNNING")
                if name not in moved:
                    assert len(worker.task_pids(name)) == counts[name], "other tasks go on"
        finally:
            worker.kill()


def test_thirty_kills_of_any_process_lose_and_repeat_nothing(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    kinds = ["executor"] * 10 + ["task"] * 12 + ["driver"] * 4 + ["broker"] * 4
    assert len(kinds) == KILLS
    chance.shuffle(kinds)
    with BrokerProcess() as broker, cluster(tmp_path) as spark:
        worker = connect_worker(tmp_path, broker.bootstrap, spark.url)
        worker.start()
        try:
            pipelines = [FilePipeline(worker, f"p{n}") for n in range(PIPELINES)]
            for number, kind in enumerate(kinds):
                for each in pipelines:
                    each.add(chance.randrange(1, 40))
                if kind == "broker":
                    broker.kill()
                    broker.start()
                elif kind == "driver":
                    worker.kill()
                    worker.start()
                elif kind == "executor":
                    wait_for(lambda: kill_one(chance, spark.executors()), kind, SPARK_PATIENCE_S)
                else:
                    name = chance.choice(pipelines).connectors[chance.randrange(2)]
                    wait_for(partial(kill_last, worker, name), kind, SPARK_PATIENCE_S)
                for each in pipelines:
                    each.add(chance.randrange(1, 40))
                if number % 3 == 2:
                    for each in pipelines:
                        each.wait()
            for each in pipelines:
                each.wait()
        finally:
            worker.kill()


def kill_last(worker: WorkerProcess, name: str) -> bool:
    """Kill the current process of a connector's task; return whether there was one."""
    return any(map(killed, worker.task_pids(name)[-1:]))


def kill_one(chance: random.Random, pids: list[int]) -> bool:
    return bool(pids) and killed(chance.choice(pids))


def killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False  # it has been lost with its parent, and a new one is being started
    return True
