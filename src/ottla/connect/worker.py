"""Worker: runs the tasks that a herder assigns to this process.

No failure of a task ends the worker: the task reports the error and is restarted. The herders
(`standalone`, `distributed.herder`) decide which tasks run here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ottla.connect import session
from ottla.connect.api import SinkConnector, SourceConnector
from ottla.connect.config import ConnectorConfig
from ottla.connect.definition import Settings
from ottla.connect.engine import RunReports, TaskEngine, ThreadEngine
from ottla.connect.plugins import import_plugins_from
from ottla.connect.states import State, TaskId
from ottla.connect.task_context import TaskContext
from ottla.connect.task_thread import TaskThread
from ottla.connect.worker_config import SPARK_ENGINE, WorkerConfig

logger = logging.getLogger(__name__)

MAX_TASKS = 64


def task_settings(config: ConnectorConfig) -> list[Settings]:
    """Return the settings of each task. A source may query the system that it reads from."""
    connector, limit = config.connector, min(config.settings["tasks.max"], MAX_TASKS)
    if isinstance(connector, SourceConnector):
        return connector.task_settings(limit)[:limit]
    assert isinstance(connector, SinkConnector)
    return [connector.settings] * (limit if connector.shares_partitions else 1)


def make_engine(config: WorkerConfig) -> TaskEngine:
    """Return the engine that `task.engine` selects.

    Raises:
        UserError: The engine needs a package that is not installed.
    """
    if config.engine != SPARK_ENGINE:
        return ThreadEngine()
    from ottla.connect.spark_engine.engine import SparkEngine

    return SparkEngine(config)


@dataclass
class Worker:
    config: WorkerConfig

    def __post_init__(self) -> None:
        import_plugins_from(self.config.settings["plugin.path"])
        session.configure(self.config.session_settings)
        self._engine = make_engine(self.config)
        self._lock = threading.Lock()
        self._threads: dict[TaskId, TaskThread] = {}

    def start(self) -> None:
        """Prepare the engine, so that the first task starts sooner."""
        self._engine.start()

    def start_task(
        self,
        context: TaskContext,
        *,
        may_start: Callable[[], bool] = lambda: True,
        on_state: Callable[[TaskId, State, str | None], None] = lambda *_: None,
    ) -> None:
        """Run a task, after stopping a previous instance. A thread of its own supervises it."""
        self.stop_tasks([context.id])
        thread = TaskThread(
            context.id,
            self.config,
            lambda: self._engine.make_run(
                replace(context, on_retry=thread.report_retry),
                RunReports(may_start, thread.report_waiting),
            ),
            may_start=may_start,
            on_state=on_state,
        )
        with self._lock:
            self._threads[context.id] = thread
        logger.info("started task %s", context.id)
        thread.start()

    def stop_tasks(self, ids: Iterable[TaskId]) -> None:
        """Stop tasks in parallel. Threads that do not end in time are abandoned."""
        with self._lock:
            ending = [self._threads.pop(each) for each in ids if each in self._threads]
        for thread in ending:
            thread.request_stop()
        timeout_s = self.config.settings["task.shutdown.graceful.timeout.ms"] / 1000
        for thread in ending:
            thread.join(timeout_s)

    def task(self, id: TaskId) -> TaskThread | None:
        with self._lock:
            return self._threads.get(id)

    def running(self) -> list[TaskId]:
        with self._lock:
            return sorted(self._threads)

    def close(self) -> None:
        self.stop_tasks(self.running())
        self._engine.close()
        session.stop()
