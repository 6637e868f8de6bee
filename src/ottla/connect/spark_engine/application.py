"""The Spark application of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.connect.spark_engine.control_server import ControlServer


@dataclass(frozen=True)
class SparkApplication:
    """A running Spark application and the server that its tasks connect to."""

    context: Any
    """The `pyspark.SparkContext`."""
    server: ControlServer
    host: str
    """Host under which executors reach the server."""
    import_path: tuple[str, ...]

    @property
    def is_running(self) -> bool:
        try:
            return not self.context._jsc.sc().isStopped()
        except Exception:
            # Py4J raises several classes of errors when the JVM has exited.
            return False
