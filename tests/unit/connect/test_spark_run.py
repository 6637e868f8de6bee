"""The driver's side of a run on Spark, with a job that the test controls instead of Spark's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import UserError
from ottla.connect.config import ConnectorConfig
from ottla.connect.engine import RunReports
from ottla.connect.offset_storage import TopicOffsetStorage
from ottla.connect.spark_engine import run as run_module
from ottla.connect.spark_engine.application import SparkApplication
from ottla.connect.spark_engine.control_channel import ControlChannel, Message
from ottla.connect.spark_engine.control_server import ControlServer
from ottla.connect.spark_engine.engine import SparkEngine
from ottla.connect.spark_engine.run import LOST, NO_CORE, SparkRun
from ottla.connect.spark_engine.task_spec import TaskSpec
from ottla.connect.states import TaskId
from ottla.connect.stop_signal import StopSignal
from ottla.connect.task_context import TaskContext
from ottla.connect.worker_config import WorkerConfig

PATIENCE_S = 20.0
WORKER = {
    "key.converter": "StringConverter", "value.converter": "StringConverter",
    "offset.storage.file.filename": "offsets", "task.engine": "spark",
}  # fmt: skip
CONNECTOR = {"name": "c", "connector.class": "FileStreamSource", "file": "in.txt", "topic": "t"}
Job = Callable[[TaskSpec], Message]


class Cancelled(Exception):
    """Stands for the exception that PySpark raises for a cancelled job."""


class FakeSpark:
    """A Spark context whose job is a function of the test."""

    def __init__(self, *jobs: Job) -> None:
        self._jobs = iter(jobs)
        self._spec: TaskSpec | None = None
        self.cancelled = threading.Event()

    def setJobGroup(self, group: str, description: str, interrupt: bool) -> None:  # noqa: N802
        assert description == "Connect task c-0"
        assert interrupt

    def parallelize(self, items: list[int], partitions: int) -> FakeSpark:
        return self

    def mapPartitions(self, function: Any) -> FakeSpark:  # noqa: N802
        (self._spec,) = function.args
        return self

    def collect(self) -> list[str]:
        assert self._spec is not None
        return [json.dumps(next(self._jobs)(self._spec))]

    @property
    def _jsc(self) -> FakeSpark:
        return self

    def sc(self) -> FakeSpark:
        return self

    def cancelJobGroupAndFutureJobs(self, group: str) -> None:  # noqa: N802
        self.cancelled.set()

    def wait_until_cancelled(self) -> Message:
        assert self.cancelled.wait(PATIENCE_S)
        raise Cancelled("Job 1 cancelled part of cancelled job group")


class Engine(SparkEngine):
    """An engine with an application that the test makes."""

    made: SparkApplication

    def application(self, stopping: StopSignal) -> SparkApplication | None:
        return self.made


class Observed:
    """A run, and what it reported."""

    def __init__(self, folder: Path) -> None:
        self.engine = Engine(WorkerConfig.of(WORKER))
        self.server = ControlServer("127.0.0.1")
        self.stopping = StopSignal()
        self.waiting: list[str] = []
        self.offsets: list[Any] = []
        self.started = threading.Event()
        self.reported = threading.Event()
        self.may_start = True
        self._folder = folder

    def run(self, spark: FakeSpark) -> None:
        config = ConnectorConfig.of(CONNECTOR, WORKER)
        context = TaskContext(
            TaskId("c", 0), config, config.connector.settings, WorkerConfig.of(WORKER),
            TopicOffsetStorage("o"), "c", "connect-c-0", self._folder,
            on_offsets=self.offsets.extend,
        )  # fmt: skip
        self.engine.made = SparkApplication(spark, self.server, "127.0.0.1", ())
        reports = RunReports(lambda: self.may_start, self._on_waiting)
        SparkRun(self.engine, context, reports).run(self.stopping, self.started.set)

    def _on_waiting(self, reason: str) -> None:
        self.waiting.append(reason)
        self.reported.set()


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[Observed]:
    pytest.importorskip("pyspark")
    made = Observed(tmp_path)
    yield made
    made.server.close()
    made.engine.close()


def connect(spec: TaskSpec) -> tuple[ControlChannel, Message]:
    """Connect as the process of the task, and return the driver's reply."""
    control = spec.control
    channel = ControlChannel.connect(control.host, control.port, control.run, control.key)
    channel.send({"attempt": 0, "host": "h", "pid": 1})
    return channel, channel.receive()


def end(channel: ControlChannel) -> None:
    channel.send({"ended": True})
    channel.close()


def test_the_reports_of_a_process_reach_the_worker(observed: Observed) -> None:
    def job(spec: TaskSpec) -> Message:
        channel, reply = connect(spec)
        assert reply["name"]
        channel.send({"states": [{"started": True}], "offsets": [[{"f": 1}, {"position": 2}]]})
        assert observed.started.wait(PATIENCE_S)
        end(channel)
        return {"error": None}

    observed.run(FakeSpark(job))
    assert observed.offsets == [({"f": 1}, {"position": 2})]
    assert observed.waiting == []


def test_an_error_of_the_connector_fails_the_run_with_its_message(observed: Observed) -> None:
    with pytest.raises(UserError, match=r"^the disk is full$"):
        observed.run(FakeSpark(lambda spec: {"error": "the disk is full"}))


def test_a_task_without_a_core_says_so(observed: Observed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "NO_CORE_AFTER_S", 0.01)

    def job(spec: TaskSpec) -> Message:
        assert observed.reported.wait(PATIENCE_S)
        return {"error": None}

    observed.run(FakeSpark(job))
    assert observed.waiting == [NO_CORE]


def test_a_stop_before_the_process_connects_cancels_the_job(observed: Observed) -> None:
    def job(spec: TaskSpec) -> Message:
        return spark.wait_until_cancelled()

    spark = FakeSpark(job)
    threading.Timer(0.05, observed.stopping.set).start()
    observed.run(spark)
    assert spark.cancelled.is_set()


def test_a_stop_asks_the_process_and_cancels_only_if_it_does_not_end(observed: Observed) -> None:
    def job(spec: TaskSpec) -> Message:
        channel, _ = connect(spec)
        observed.stopping.set()
        assert channel.receive() == {"stop": True}
        end(channel)
        return {"error": None}

    spark = FakeSpark(job)
    observed.run(spark)
    assert not spark.cancelled.is_set()


def test_a_process_may_not_begin_if_the_task_belongs_to_another_worker(
    observed: Observed,
) -> None:
    observed.may_start = False

    def job(spec: TaskSpec) -> Message:
        channel, reply = connect(spec)
        assert "name" not in reply
        channel.close()
        return {"is_refused": True}

    with pytest.raises(UserError, match="no longer assigned to this worker"):
        observed.run(FakeSpark(job))


def test_a_lost_process_is_reported_and_its_successor_has_another_name(
    observed: Observed,
) -> None:
    names = []

    def job(spec: TaskSpec) -> Message:
        first, reply = connect(spec)
        names.append(reply["name"])
        first.close()  # as when the process is killed
        assert observed.reported.wait(PATIENCE_S)
        second, reply = connect(spec)
        names.append(reply["name"])
        end(second)
        return {"error": None}

    observed.run(FakeSpark(job))
    assert observed.waiting == [LOST]
    assert len(set(names)) == 2


def test_a_process_keeps_its_name_if_the_previous_run_ended(observed: Observed) -> None:
    names = []

    def job(spec: TaskSpec) -> Message:
        channel, reply = connect(spec)
        names.append(reply["name"])
        end(channel)
        return {"error": None}

    observed.run(FakeSpark(job))
    observed.run(FakeSpark(job))
    assert len(set(names)) == 1


def test_a_job_that_spark_gives_up_is_submitted_again_only_if_it_had_worked(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "CLEAN_AFTER_S", -1.0)
    failure = (
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent "
        "failure: Lost task 0.3 in stage 0.0 (TID 3) (host executor 1): "
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat x"
    )

    def worked(spec: TaskSpec) -> Message:
        channel, _ = connect(spec)
        channel.send({"states": [{"started": True}]})
        assert observed.started.wait(PATIENCE_S)
        channel.close()
        raise Cancelled(failure)

    def failed(spec: TaskSpec) -> Message:
        raise Cancelled(failure)

    with pytest.raises(UserError) as raised:
        observed.run(FakeSpark(worked, failed))
    assert "Python worker exited unexpectedly" in str(raised.value)
    assert "\n" not in str(raised.value)
