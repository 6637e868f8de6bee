"""Spark session of the worker, shared by its connectors and created on first use.

Connectors that work with tables or DataFrames use it; a worker without them never starts a JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ottla.base.errors import UserError
from ottla.connect.spark_errors import reason_of

SETTINGS = {
    "spark.sql.streaming.stopTimeout": "30s",
    # Starting a Python worker takes long on a busy machine.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
}
_lock = threading.Lock()
_given: dict[str, str] = {}
_session: Any = None
_is_shared = False
"""Whether the program that started the worker provided the session, and stops it."""
_is_forbidden = False
NOT_IN_TASKS = (
    "The Spark session exists only in the worker, and this task runs in a process of its own. Set "
    "uses_spark_session = True in the class of the connector, and its tasks run in the worker."
)


def configure(settings: Mapping[str, str]) -> None:
    """Set the worker's `spark.*` properties. Must be called before the session is created."""
    with _lock:
        _given.clear()
        _given.update(settings)


def spark_session() -> Any:
    """Return the worker's Spark session, which is created on the first call.

    Returns:
        A `pyspark.sql.SparkSession` with the `spark.*` properties of the worker.

    Raises:
        UserError: PySpark is not installed, Spark does not start, or the calling task runs in a
            process of its own (`Connector.uses_spark_session`).
    """
    global _session
    if _is_forbidden:
        raise UserError(NOT_IN_TASKS)
    with _lock:
        if _session is None:
            from ottla.spark import session

            settings = SETTINGS | _given
            master = settings.pop("spark.master", None)
            try:
                _session = session(master, app_name="ottla-connect", **settings)
            except UserError:
                raise
            except Exception as error:
                # PySpark and Py4J raise exceptions with no common base class below Exception.
                raise UserError(not_started(str(error), _given)) from error
            # Errors appear in the task's status and in the worker's own log.
            _session.sparkContext.setLogLevel("OFF")
        return _session


def share(spark: Any) -> None:
    """Use an existing session instead of creating one. `stop` does not stop it."""
    global _session, _is_shared
    with _lock:
        _session, _is_shared = spark, True


def forbid_in_task() -> None:
    """Make `spark_session` fail in this process, which is that of a task on an executor."""
    global _is_forbidden
    _is_forbidden = True


def discard() -> None:
    """Forget a session whose JVM has exited, so that the next call creates a new one."""
    global _session, _is_shared
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with _lock:
        _session, _is_shared = None, False
        # PySpark keeps its connection to the JVM in these attributes, even if the JVM has exited.
        with SparkContext._lock:
            SparkContext._active_spark_context = None
            SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def not_started(text: str, properties: Mapping[str, str]) -> str:
    """Return a sentence that explains why Spark does not start."""
    packages = properties.get("spark.jars.packages")
    if "JAVA_GATEWAY_EXITED" not in text:
        return f"Spark did not start: {reason_of(text)}"
    message = "Spark did not start: its JVM exited. See the reason on the worker's console"
    if not packages:
        return f"{message}."
    return (
        f"{message}. At this point Spark downloads spark.jars.packages={packages}. Check that "
        "the packages exist in these versions, and that this machine can reach the repository."
    )


def stop() -> None:
    global _session
    with _lock:
        if _session is not None and not _is_shared:
            _session.stop()
            _session = None
