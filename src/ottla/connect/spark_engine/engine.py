"""The Spark engine of a worker, which is the driver of a Spark application.

Spark starts in the background with the worker. If its JVM exits, the next run starts a new one.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import uuid
from concurrent.futures import Future
from importlib.util import find_spec

from ottla.base.errors import UserError
from ottla.base.installation import install_extra
from ottla.connect import log_levels, session
from ottla.connect.engine import RunReports, run_here
from ottla.connect.spark_engine.application import SparkApplication
from ottla.connect.spark_engine.control_server import ControlServer
from ottla.connect.spark_engine.plugin_files import add_plugin_files
from ottla.connect.spark_engine.run import SparkRun
from ottla.connect.spark_engine.settings import is_local
from ottla.connect.states import TaskId
from ottla.connect.stop_signal import StopSignal
from ottla.connect.task_context import TaskContext
from ottla.connect.task_thread import TaskRun
from ottla.connect.worker_config import WorkerConfig

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1
LOOPBACK = "127.0.0.1"
ANY_ADDRESS = "0.0.0.0"


class SparkEngine:
    """Runs tasks as long-lived tasks of a Spark application.

    Raises:
        UserError: PySpark is not installed.
    """

    def __init__(self, config: WorkerConfig) -> None:
        if find_spec("pyspark") is None:
            raise UserError(
                "task.engine=spark requires Spark. Install it with: "
                f"{install_extra('spark')}\nOr set task.engine=threads to run tasks without it."
            )
        self._config = config
        self._lock = threading.Lock()
        self._starting: Future[SparkApplication] | None = None
        self._prefix = uuid.uuid4().hex[:12]
        self._names: dict[TaskId, str] = {}
        self._is_closed = False
        log_levels.add_listener(self._on_level)

    def start(self) -> None:
        """Start Spark in the background."""
        self._future()

    def make_run(self, context: TaskContext, reports: RunReports) -> TaskRun:
        if context.config.connector.uses_spark_session:
            return run_here(context)
        return SparkRun(self, context, reports)

    def close(self) -> None:
        log_levels.remove_listener(self._on_level)
        with self._lock:
            self._is_closed = True
            starting, self._starting = self._starting, None
        if starting is not None and starting.done() and starting.exception() is None:
            starting.result().server.close()

    # --------------------------------------------------------------------------- application

    def application(self, stopping: StopSignal) -> SparkApplication | None:
        """Wait for Spark; return None if the task must stop before Spark has started.

        Raises:
            UserError: Spark does not start.
        """
        starting = self._future()
        while not stopping.is_set():
            try:
                return starting.result(LOOK_EVERY_S)
            except TimeoutError:
                continue
        return None

    def _future(self) -> Future[SparkApplication]:
        with self._lock:
            current = self._starting
            if current is not None and (not current.done() or _is_usable(current)):
                return current
            if current is not None and current.exception() is None:
                logger.error("Spark has stopped; starting it again")
                current.result().server.close()
                session.discard()
            made: Future[SparkApplication] = Future()
            self._starting = made
        threading.Thread(target=self._start, args=(made,), name="spark", daemon=True).start()
        return made

    def _start(self, made: Future[SparkApplication]) -> None:
        try:
            application = self._application()
        except BaseException as error:
            made.set_exception(error)
            return
        made.set_result(application)
        with self._lock:
            is_late = self._is_closed
        if is_late:
            application.server.close()

    def _application(self) -> SparkApplication:
        context = session.spark_session().sparkContext
        conf = context.getConf()
        if conf.get("spark.speculation", "false") == "true":
            raise UserError("spark.speculation=true would run two instances of a task at once.")
        local = is_local(context.master)
        host = LOOPBACK if local else conf.get("spark.driver.host", LOOPBACK)
        bind = host if local else conf.get("spark.driver.bindAddress", ANY_ADDRESS)
        port = self._config.settings["task.control.port"]
        try:
            server = ControlServer(bind, port)
        except OSError as error:
            reason = (error.strerror or "unknown reason").lower()
            raise UserError(
                f"The worker cannot listen on {bind}:{port} for its tasks: {reason}. Set "
                "task.control.port or spark.driver.bindAddress."
            ) from error
        if not local:
            add_plugin_files(context, self._config.settings["plugin.path"])
        path = tuple(map(os.path.abspath, sys.path)) if local else ()
        logger.info("tasks run on Spark: %s, application %s", context.master, context.applicationId)
        return SparkApplication(context, server, host, path)

    # -------------------------------------------------------------- log levels of processes

    def log_levels(self) -> dict[str, int]:
        """Return the levels of loggers that have one, '' for the root logger."""
        found = {"": logging.getLogger().getEffectiveLevel()}
        for name, each in list(logging.Logger.manager.loggerDict.items()):
            if isinstance(each, logging.Logger) and each.level != logging.NOTSET:
                found[name] = each.level
        return found

    def _on_level(self, name: str, level: str) -> None:
        with self._lock:
            starting = self._starting
        if starting is not None and starting.done() and starting.exception() is None:
            starting.result().server.send_to_all({"level": [name, level]})

    # --------------------------------------------------------------------- names of processes

    def name_of(self, id: TaskId) -> str:
        """Return the name of the task's last process if its run has ended, or ''."""
        with self._lock:
            return self._names.get(id, "")

    def new_name(self) -> str:
        return f"{self._prefix}-{uuid.uuid4().hex[:8]}"

    def keep_name(self, id: TaskId, name: str) -> None:
        with self._lock:
            if name:
                self._names[id] = name

    def forget_name(self, id: TaskId) -> None:
        with self._lock:
            self._names.pop(id, None)


def _is_usable(current: Future[SparkApplication]) -> bool:
    return current.exception() is None and current.result().is_running
