"""PySpark's daemon of Python workers, quiet about sockets that Spark closed first.

Spark asks a Python of its own to commit each batch of a Python sink, and hangs up as soon as it has
the answer. The daemon prints a traceback then, for each batch; there is nothing in it for anybody.
Sessions on one machine run it instead of `pyspark.daemon`: Spark has a setting for that
(`spark.python.daemon.module`), and does not look at it for these Pythons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HUNG_UP = 1
"""An exit code: this worker is of no more use."""


def quiet(worker: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    def run(sock: Any, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return HUNG_UP

    return run


if __name__ == "__main__":
    from pyspark import daemon

    daemon.worker = quiet(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
