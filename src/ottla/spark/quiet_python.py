"""PySpark's own programs in Python, quiet about sockets that Spark closed first.

    python -m ottla.spark.quiet_python MODULE [ARGUMENT …]

Spark asks a Python of its own to commit each batch of a Python sink, and hangs up as soon as it has
the answer; the Python that plans a stream's batches it leaves in the middle of a question when the
query is stopped. Both would print tracebacks, with nothing in them for anybody. Sessions on one
machine start PySpark's programs through here: Spark has a setting for its daemon
(`spark.python.daemon.module`), and does not look at it for these Pythons."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

DAEMON = "pyspark.daemon"
HUNG_UP = 1
"""An exit code: this worker is of no more use."""
CLOSED = (BrokenPipeError, ConnectionResetError)


def quiet_worker(worker: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    """The same for each of the daemon's workers, which it forks."""

    def run(sock: Any, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except CLOSED:
            return HUNG_UP

    return run


def run_quietly(module: str) -> None:
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except CLOSED:
        os._exit(HUNG_UP)  # at once: closing the socket on the way out would say it again


if __name__ == "__main__":
    del sys.argv[0]
    if sys.argv[0] == DAEMON:
        from pyspark import daemon

        daemon.worker = quiet_worker(daemon.worker)  # type: ignore[assignment]
        daemon.manager()
    else:
        run_quietly(sys.argv[0])
