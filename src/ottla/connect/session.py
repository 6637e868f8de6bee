"""The worker's Spark session: one for all connectors that need it, made when the first one does.

A connector whose work is a table's or a DataFrame's takes it from here; the others never start a
Java."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

SETTINGS = {
    "spark.sql.streaming.stopTimeout": "30s",
    # A busy machine takes its time to start a Python.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
}
_lock = threading.Lock()
_given: dict[str, str] = {}
_session: Any = None


def configure(settings: Mapping[str, str]) -> None:
    """The worker's `spark.*`, before anybody asks for the session."""
    with _lock:
        _given.clear()
        _given.update(settings)


def spark_session() -> Any:
    """Raises UserError where PySpark is not installed."""
    global _session
    with _lock:
        if _session is None:
            from ottla.spark import session

            settings = SETTINGS | _given
            master = settings.pop("spark.master", None)
            _session = session(master, app_name="ottla-connect", **settings)
            # What goes wrong is in a task's status, and in our own log.
            _session.sparkContext.setLogLevel("OFF")
        return _session


def stop() -> None:
    global _session
    with _lock:
        if _session is not None:
            _session.stop()
            _session = None
