"""The driver's side of one run of a task: a Spark job of one task, and what it reports.

    waiting for a core ─► connected ─► started ─► ended, with or without an error
         UNASSIGNED        UNASSIGNED   RUNNING
             ▲                             │
             └── process or executor lost ─┘   Spark starts the task again, up to
                                               spark.task.maxFailures times

When Spark gives up, the run is submitted again if it had worked for a while. Otherwise it fails,
and `TaskThread` restarts the task after a pause, as after an error of the connector.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ottla.base.errors import UserError
from ottla.connect.engine import RunReports
from ottla.connect.spark_engine.application import SparkApplication
from ottla.connect.spark_engine.control_channel import ChannelClosed, ControlChannel, Message
from ottla.connect.spark_engine.task_process import run_task
from ottla.connect.spark_engine.task_spec import ControlAddress, TaskSpec
from ottla.connect.spark_errors import reason_of
from ottla.connect.states import TaskId
from ottla.connect.stop_signal import StopSignal
from ottla.connect.task_context import TaskContext
from ottla.connect.task_thread import CLEAN_AFTER_S

logger = logging.getLogger(__name__)

NO_CORE_AFTER_S = 3.0
"""Time without a process after which the task's status says that it waits for a core."""
LAST_REPORTS_S = 5.0
"""Time to wait for the last reports of a process after its Spark task has ended."""
NO_CORE = (
    "Waiting for a free core of the Spark application, which each task of a connector occupies. "
    "Add executors, raise spark.cores.max, or stop other connectors."
)
LOST = "The process of the task was lost. Spark starts it again."
_RECENT_FAILURE = re.compile(r"most recent failure: (?:Lost task [^:]*: )?(.*)")


class RunEngine(Protocol):
    """The part of the engine that a run uses."""

    def application(self, stopping: StopSignal) -> SparkApplication | None:
        """Wait for Spark; return None if the task must stop before Spark has started."""

    def log_levels(self) -> dict[str, int]:
        """Return the levels of loggers for the process of the task."""

    def name_of(self, id: TaskId) -> str:
        """Return the name of the task's last process if its run has ended, or ''."""

    def new_name(self) -> str:
        """Return a name for a process."""

    def keep_name(self, id: TaskId, name: str) -> None:
        """Record that the run of the process with this name has ended."""

    def forget_name(self, id: TaskId) -> None:
        """Record that the task's last process may still be running."""


class SparkRun:
    """One run of a task on Spark, until it stops or fails."""

    def __init__(self, engine: RunEngine, context: TaskContext, reports: RunReports) -> None:
        self._engine = engine
        self._context = context
        self._reports = reports
        self._lock = threading.Lock()
        self._channel: ControlChannel | None = None
        """Channel of the current process."""
        self._open_channels = 0
        self._all_closed = threading.Condition(self._lock)
        self._has_granted = False
        self._name = ""
        self._stopping = StopSignal()
        self._started: Callable[[], None] = lambda: None
        self._started_at: float | None = None
        self._has_ended = False
        """Whether the current process has reported its end."""
        self._is_over = True
        """Whether there is no job; `TaskThread` then owns the state of the task."""
        self._cancel: Callable[[], None] = lambda: None
        self._deadline: threading.Timer | None = None
        self._problem: str | None = None
        """Reason why this run cancelled its own job."""

    def run(self, stopping: StopSignal, started: Callable[[], None]) -> None:
        """Run until `stopping` is set; raise on errors that end the run."""
        self._stopping, self._started = stopping, started
        application = self._engine.application(stopping)
        if application is None:
            return
        while not stopping.is_set():
            self._started_at, self._has_granted, self._problem = None, False, None
            try:
                outcome = self._submit(application)
            except UserError as error:
                self._engine.forget_name(self._context.id)
                if stopping.is_set():
                    return
                if not self._has_worked():
                    raise
                logger.warning("task %s is submitted to Spark again: %s", self._context.id, error)
                continue
            self._engine.keep_name(self._context.id, self._name)
            self._check(outcome)
            return

    def _has_worked(self) -> bool:
        return self._started_at is not None and time.monotonic() - self._started_at > CLEAN_AFTER_S

    def _check(self, outcome: Message) -> None:
        if self._stopping.is_set() and not outcome.get("error"):
            return
        if outcome.get("is_refused"):
            raise UserError("The task is no longer assigned to this worker.")
        if outcome.get("is_lost"):
            raise UserError("The process of the task lost the connection to its worker.")
        if outcome.get("error"):
            raise UserError(str(outcome["error"]))

    # ----------------------------------------------------------------------------- Spark's job

    def _submit(self, application: SparkApplication) -> Message:
        """Run the job; return the outcome of the task, or raise UserError if Spark fails it."""
        server, spark = application.server, application.context
        run, key = server.register(self)
        control = ControlAddress(application.host, server.port, run, key)
        group = f"connect-{self._context.id}-{run}"
        self._cancel = partial(_cancel, spark, group)
        spec = TaskSpec.of(
            self._context, control, self._engine.log_levels(), application.import_path
        )
        notice = threading.Timer(NO_CORE_AFTER_S, self._report_no_core)
        notice.daemon = True
        notice.start()
        self._is_over = False
        self._stopping.when_set(self._request_stop)
        try:
            spark.setJobGroup(group, f"Connect task {self._context.id}", True)
            job = spark.parallelize([0], 1).mapPartitions(partial(run_task, spec))
            outcome: Message = json.loads(job.collect()[0])
            self._wait_for_last_reports()
            return outcome
        except Exception as error:
            # Py4J and Spark raise exceptions with no common base class below Exception.
            if self._problem is not None:
                raise UserError(self._problem) from None
            logger.debug("the Spark job of task %s", self._context.id, exc_info=error)
            raise UserError(f"Spark could not run the task: {_failure(str(error))}") from None
        finally:
            with self._lock:
                self._is_over = True
            notice.cancel()
            self._stopping.when_set(None)
            if self._deadline is not None:
                self._deadline.cancel()
            server.forget(run)

    def _wait_for_last_reports(self) -> None:
        with self._all_closed:
            self._all_closed.wait_for(lambda: not self._open_channels, LAST_REPORTS_S)

    def _report_no_core(self) -> None:
        with self._lock:
            if not (self._has_granted or self._is_over):
                self._reports.on_waiting(NO_CORE)

    def _request_stop(self) -> None:
        with self._lock:
            channel = self._channel
        if channel is None:
            self._cancel()
            return
        shutdown_ms = self._context.worker.settings["task.shutdown.graceful.timeout.ms"]
        self._deadline = threading.Timer(shutdown_ms / 1000, self._cancel)
        self._deadline.daemon = True
        self._deadline.start()
        try:
            channel.send({"stop": True})
        except ChannelClosed:
            self._cancel()

    # --------------------------------------------------------------- from the control server

    def on_connected(self, channel: ControlChannel, hello: Message) -> Message:
        with self._lock:
            self._open_channels += 1
            if self._stopping.is_set() or not self._reports.may_start():
                return {"is_refused": True}
            before, self._channel = self._channel, channel
            # A new process gets a new name unless the previous one is known to have ended: the
            # task then fences it from its target.
            kept = "" if self._has_granted else self._engine.name_of(self._context.id)
            self._name = kept or self._engine.new_name()
            self._has_granted, self._has_ended = True, False
        if before is not None:
            before.close()
        logger.info(
            "task %s runs on Spark: process %s on %s, attempt %s",
            self._context.id, hello.get("pid"), hello.get("host"), hello.get("attempt"),
        )  # fmt: skip
        return {"name": self._name}

    def on_report(self, report: Message) -> None:
        context = self._context
        self._has_ended = bool(report.get("ended"))
        for name, level, text in report.get("log", ()):
            _log(name, level, text)
        for topic in report.get("topics", ()):
            context.on_topic(topic)
        if report.get("offsets"):
            context.on_offsets([(partition, offset) for partition, offset in report["offsets"]])
        for state in report.get("states", ()):
            if state.get("started"):
                self._started_at = time.monotonic()
                self._started()
            else:
                context.on_retry(state.get("retry"))

    def on_closed(self, channel: ControlChannel, *, is_silent: bool) -> None:
        with self._all_closed:
            self._open_channels -= 1
            self._all_closed.notify_all()
            if channel is not self._channel:
                return
            self._channel = None
            if self._is_over or self._has_ended or self._stopping.is_set():
                return
            if not is_silent:
                logger.warning("task %s: %s", self._context.id, LOST)
                self._reports.on_waiting(LOST)
                return
            self._problem = "The process of the task does not respond."
        self._cancel()


def _cancel(spark: Any, group: str) -> None:
    try:
        spark._jsc.sc().cancelJobGroupAndFutureJobs(group)
    except Exception as error:
        # Py4J has no common base class of errors; a JVM that has exited has no jobs.
        logger.debug("cannot cancel the job group %s: %s", group, error)


def _failure(text: str) -> str:
    """Return the reason why Spark failed a job."""
    found = _RECENT_FAILURE.search(text)
    return reason_of(found[1]) if found and "Traceback" not in text else reason_of(text)


def _log(name: str, level: int, text: str) -> None:
    target = logging.getLogger(name)
    if target.isEnabledFor(level):
        fields = {
            "name": name, "levelno": level, "levelname": logging.getLevelName(level), "msg": text,
        }  # fmt: skip
        target.handle(logging.makeLogRecord(fields))
