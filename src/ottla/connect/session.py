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
        UserError: PySpark is not installed, or Spark does not start.
    """
    global _session
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
        if _session is not None:
            _session.stop()
            _session = None
