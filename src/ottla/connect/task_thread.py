"""Threads of tasks, with their state and restarts after failures.

Unlike Kafka, the worker restarts failed tasks automatically; `task.restart.*` controls how often.
The delay doubles with each consecutive failure, and a run of more than a minute resets it. A task
is RUNNING only once it processes records: one that fails at every start remains FAILED.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ottla.base.errors import KafkaError, UserError
from ottla.connect.api import RetriableError
from ottla.connect.retrying import restart_delay_ms
from ottla.connect.spark_errors import reason_of
from ottla.connect.states import State, TaskId
from ottla.connect.stop_signal import StopSignal
from ottla.connect.worker_config import WorkerConfig

logger = logging.getLogger(__name__)

CLEAN_AFTER_S = 60.0
MAY_START_EVERY_S = 0.1


class TaskRun(Protocol):
    """One attempt at a task's work."""

    def run(self, stopping: StopSignal, started: Callable[[], None]) -> None:
        """Run the task. Calls `started` as soon as it is ready to process records."""


class TaskThread:
    """Thread that runs a task and restarts it after failures.

    Args:
        id: ID of the task.
        worker: Configuration of the worker.
        make_run: Called for each start.
        may_start: Whether the task is still assigned to this worker. The thread waits until it is.
        on_state: Called when the state or the trace changes.
    """

    def __init__(
        self,
        id: TaskId,
        worker: WorkerConfig,
        make_run: Callable[[], TaskRun],
        *,
        may_start: Callable[[], bool] = lambda: True,
        on_state: Callable[[TaskId, State, str | None], None] = lambda *_: None,
    ) -> None:
        self.id = id
        self.state = State.UNASSIGNED
        self.trace: str | None = None
        self._worker = worker
        self._make_run = make_run
        self._may_start = may_start
        self._on_state = on_state
        self._stopping = StopSignal()
        self._restart = threading.Event()
        """Set to restart immediately instead of after the delay."""
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=f"task-{id}", daemon=True)

    # ------------------------------------------------------------------ from other threads

    def start(self) -> None:
        self._thread.start()

    def request_stop(self) -> None:
        self._stopping.set()
        self._restart.set()

    def join(self, timeout_s: float) -> bool:
        """Stop and wait for the thread; return whether it has ended.

        A thread that has not is fenced from topics when the task next starts.
        """
        self.request_stop()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            logger.error("task %s did not stop within %.0f s; abandoning it", self.id, timeout_s)
            return False
        return True

    def restart_if_failed(self) -> None:
        self._failures = 0
        self._restart.set()

    # --------------------------------------------------------------------------- lifecycle

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._may_start():
                self._stopping.wait(MAY_START_EVERY_S)
                continue
            began = time.monotonic()
            try:
                self._make_run().run(self._stopping, lambda: self._enter(State.RUNNING))
            except Exception as error:
                # No failure of a task may end the worker.
                if self._stopping.is_set():
                    logger.info("task %s ended: %s", self.id, sentence(error))
                    break
                self._fail(error, time.monotonic() - began)
        if self.state is not State.FAILED:
            self.state = State.UNASSIGNED

    def _fail(self, error: Exception, ran_s: float) -> None:
        if ran_s > CLEAN_AFTER_S:
            self._failures = 0
        self._failures += 1
        logger.debug("task %s", self.id, exc_info=error)
        reason = sentence(error)
        limit = self._worker.settings["task.restart.max.attempts"]
        self._restart.clear()
        if 0 <= limit < self._failures:
            logger.error("task %s failed and will not be restarted: %s", self.id, reason)
            self._enter(State.FAILED, reason)
            self._wait_for_restart(None)
            return
        pause_ms = restart_delay_ms(
            self._failures,
            self._worker.settings["task.restart.backoff.ms"],
            self._worker.settings["task.restart.backoff.max.ms"],
        )
        logger.error("task %s failed; restarting it in %d ms: %s", self.id, pause_ms, reason)
        self._enter(State.FAILED, reason)
        self._wait_for_restart(pause_ms / 1000)

    def _wait_for_restart(self, pause_s: float | None) -> None:
        if not self._stopping.is_set():
            self._restart.wait(pause_s)

    def report_retry(self, reason: str | None) -> None:
        """Report an error that is being retried, from the task's own thread; None clears it."""
        if reason is not None or self.state is State.RUNNING:
            self._enter(self.state, reason)

    def report_waiting(self, reason: str) -> None:
        """Report that the task runs nowhere at the moment, from the engine's threads."""
        if not self._stopping.is_set():
            self._enter(State.UNASSIGNED, reason)

    def _enter(self, state: State, trace: str | None = None) -> None:
        changed = (self.state, self.trace) != (state, trace)
        self.state, self.trace = state, trace
        if changed:
            self._on_state(self.id, state, trace)


def sentence(error: BaseException) -> str:
    """Return an exception as text for a status."""
    text = str(error)
    if isinstance(error, UserError | KafkaError) or (text and isinstance(error, RetriableError)):
        return text
    if "Traceback" in text or "\n\tat " in text:
        return reason_of(text)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
