"""Tasks of connectors on Spark: a `connect-standalone` process that is the driver of `local[2]`.

The broker, the worker, Spark and the killed processes are real."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.connect.file_pipeline import FilePipeline
from tests.connect.workers import SPARK_PATIENCE_S, WorkerProcess, values, wait_for

from ottla.testing.broker_thread import BrokerThread

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(600)

PLUGIN = """
from ottla.connect import ConnectRecord, Polled, SourceConnector, SourceTask

class Once(SourceConnector):
    def make_task(self, settings):
        return OnceTask()

class OnceTask(SourceTask):
    def start(self, offsets):
        self.is_done = bool(offsets)

    def poll(self, wait_s):
        if self.is_done:
            return Polled()
        self.is_done = True
        return Polled([ConnectRecord("plugged", "from a plugin")], [({"once": 1}, {"done": 1})])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("on-spark")
    (made / "plugins").mkdir()
    (made / "plugins" / "once_plugin.py").write_text(PLUGIN)
    return made


@pytest.fixture(scope="module")
def worker(broker: BrokerThread, folder: Path) -> Iterator[WorkerProcess]:
    properties = {
        "task.engine": "spark", "spark.master": "local[2]",
        "plugin.path": str(folder / "plugins"), "task.restart.backoff.max.ms": "500",
    }  # fmt: skip
    made = WorkerProcess("standalone", folder, broker.bootstrap, properties)
    made.start()
    yield made
    made.kill()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def children(pid: int) -> list[int]:
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(each) for each in listed.stdout.split()]


def test_each_task_has_a_process_of_its_own(worker: WorkerProcess) -> None:
    files = FilePipeline(worker, "apart")
    files.add(3)
    files.wait()
    files.add(1)
    files.wait()
    source, sink = worker.task_pids("apart-source")[-1], worker.task_pids("apart-sink")[-1]
    assert worker.process is not None
    assert len({source, sink, worker.process.pid}) == 3
    assert is_alive(source)
    offsets = worker.ask("GET", "/connectors/apart-source/offsets")[1]["offsets"]
    assert offsets[0]["offset"]["position"] == files.source.stat().st_size
    files.delete()


def test_more_tasks_run_than_the_local_master_has_cores(worker: WorkerProcess) -> None:
    made = [FilePipeline(worker, f"many-{n}") for n in range(3)]
    for files in made:
        files.add(2)
    for files in made:
        files.wait()
        files.delete()


def test_a_killed_process_loses_and_repeats_nothing(worker: WorkerProcess) -> None:
    files = FilePipeline(worker, "killed")
    files.add(5)
    files.wait()
    for kill in range(4):
        name = ("killed-source", "killed-sink")[kill % 2]
        pids = worker.task_pids(name)
        files.add(20)
        os.kill(pids[-1], signal.SIGKILL)
        files.add(20)
        worker.wait_for_new_process(name, len(pids))
        files.wait()
        worker.wait_for_state(name, "RUNNING")
    files.delete()


def test_an_error_of_the_connector_is_in_its_status_until_it_has_passed(
    worker: WorkerProcess,
) -> None:
    target = worker.folder / "missing" / "out.txt"
    files = FilePipeline(worker, "failing")
    worker.put("failing-sink", "FileStreamSink", file=target, topics="failing")
    files.add(1)
    found = worker.wait_for_state("failing-sink", "FAILED")
    assert str(target) in found["trace"]
    assert "Traceback" not in found["trace"]
    target.parent.mkdir()
    worker.wait_for_state("failing-sink", "RUNNING")
    wait_for(lambda: target.exists() and target.read_text() == "line 0\n", "the line")
    files.delete()


def test_a_process_that_does_not_respond_is_replaced(worker: WorkerProcess) -> None:
    files = FilePipeline(worker, "stuck")
    files.add(1)
    files.wait()
    pids = worker.task_pids("stuck-source")
    os.kill(pids[-1], signal.SIGSTOP)
    worker.wait_for_new_process("stuck-source", len(pids))
    files.add(1)
    files.wait()
    wait_for(lambda: not is_alive(pids[-1]), "the end of the old process")
    files.delete()


def test_log_levels_apply_to_the_processes_and_their_log_is_the_workers(
    worker: WorkerProcess,
) -> None:
    files = FilePipeline(worker, "logged")
    files.add(1)
    files.wait()
    logger = "/admin/loggers/ottla.connect.spark_engine.task_process"
    assert worker.ask("PUT", logger, {"level": "DEBUG"})[0] == 200
    worker.put("logged-sink", "FileStreamSink", file="/no/such/folder/x", topics="logged")
    worker.wait_for_state("logged-sink", "FAILED")
    wait_for(lambda: "Traceback" in worker.log.read_text(), "the exception in the worker's log")
    assert worker.ask("PUT", logger, {"level": "INFO"})[0] == 200
    files.delete()


def test_connectors_of_the_plugin_path_run_on_executors(
    worker: WorkerProcess, broker: BrokerThread
) -> None:
    worker.put("once", "once_plugin.Once")
    worker.wait_for_state("once", "RUNNING")
    wait_for(lambda: values(broker.bootstrap, "plugged") == [b"from a plugin"], "the record")
    assert worker.ask("DELETE", "/connectors/once")[0] == 204


def test_connectors_that_use_the_session_run_in_the_worker(worker: WorkerProcess) -> None:
    files = FilePipeline(worker, "table")
    target = worker.folder / "table"
    worker.put(
        "table-parquet", "SparkSink", topics="table", format="json", path=target,
        value_converter="StringConverter", transforms="wrap",
        transforms_wrap_type="HoistField$Value", transforms_wrap_field="line",
    )  # fmt: skip
    files.add(2)
    files.wait()

    def rows() -> list[str]:
        return sorted(
            line for path in target.rglob("part-*.json") for line in path.read_text().splitlines()
        )

    expected = ['{"line":"line 0"}', '{"line":"line 1"}']
    wait_for(lambda: rows() == expected, "the rows", SPARK_PATIENCE_S)
    assert worker.task_pids("table-parquet") == []
    assert worker.ask("DELETE", "/connectors/table-parquet")[0] == 204
    files.delete()


def test_tasks_continue_after_the_jvm_or_the_worker_is_killed(worker: WorkerProcess) -> None:
    files = FilePipeline(worker, "outage")
    files.add(10)
    files.wait()
    assert worker.process is not None
    (jvm,) = [pid for pid in children(worker.process.pid) if b"java" in cmdline(pid)]
    os.kill(jvm, signal.SIGKILL)
    files.add(10)
    files.wait()
    left = worker.task_pids("outage-source")[-1], worker.task_pids("outage-sink")[-1]
    worker.process.kill()
    worker.process.wait()
    files.add(10)
    wait_for(lambda: not any(map(is_alive, left)), "the end of the tasks of a killed worker")
    worker.start()
    files.create()
    files.wait()


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_worker_stops_its_tasks_cleanly(worker: WorkerProcess) -> None:
    files = FilePipeline(worker, "last")
    files.add(1)
    files.wait()
    pids = worker.task_pids("last-source")
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < 30
    wait_for(lambda: not is_alive(pids[-1]), "the end of the task's process")
