"""Launcher of PySpark's programs that suppresses tracebacks for sockets that Spark has closed.

    python -m ottla.spark.pyspark_launcher MODULE [ARGUMENT …]

Spark starts a Python process to commit each batch of a Python sink, and closes the socket as soon
as it has the response. When a query stops, it also disconnects from the process that plans the
stream's batches, possibly in the middle of a request. Both processes would print useless
tracebacks. Local sessions therefore start PySpark's programs through this module. Spark's setting
`spark.python.daemon.module` does not apply to these processes.

With Spark Connect, the process that runs `foreachBatch` prints its own steps, and the token of the
server, to the console. Here it does not; the user's function still prints what it wants."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from typing import Any

DAEMON = "pyspark.daemon"
FOREACH_BATCH = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"
SOCKET_CLOSED_EXIT_CODE = 1
"""Exit code of a worker that cannot be used any more."""
SOCKET_CLOSED_ERRORS = (BrokenPipeError, ConnectionResetError)


def ignoring_closed_sockets(worker: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    """Wrap a worker of the daemon, which forks it, in the same way."""

    def run(sock: Any, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except SOCKET_CLOSED_ERRORS:
            return SOCKET_CLOSED_EXIT_CODE

    return run


def _print_nothing(*values: object, **options: object) -> None:
    pass


def run_module(module: str) -> None:
    names = {"print": _print_nothing} if module == FOREACH_BATCH else {}
    try:
        runpy.run_module(module, names, run_name="__main__", alter_sys=True)
    except SOCKET_CLOSED_ERRORS:
        os._exit(
            SOCKET_CLOSED_EXIT_CODE
        )  # skip cleanup, because closing the socket would print it again


if __name__ == "__main__":
    del sys.argv[0]
    if sys.argv[0] == DAEMON:
        from pyspark import daemon

        daemon.worker = ignoring_closed_sockets(daemon.worker)  # type: ignore[assignment]
        daemon.manager()
    else:
        run_module(sys.argv[0])
