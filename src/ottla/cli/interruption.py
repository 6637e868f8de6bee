"""Events that stop a long-running tool: Ctrl-C, SIGTERM and a closed pipe."""

from __future__ import annotations

import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130
TERMINATED = 143


class Terminated(BaseException):
    """The exception raised on SIGTERM. Like KeyboardInterrupt, `except Exception` misses it."""


@contextmanager
def termination_as_exit() -> Iterator[None]:
    """Raise Terminated on SIGTERM, so that a tool cleans up as it does on Ctrl-C."""

    def terminate(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class OutputWatch:
    """Detector for a standard output that nothing reads any more, as after `| head`.

    A write would fail as well, but a tool that waits for records may not write for hours."""

    def __init__(self) -> None:
        self._poll = select.poll()
        try:
            self._poll.register(sys.stdout.fileno(), 0)  # errors and hang-ups are always reported
        except (OSError, ValueError):  # a stream without a file descriptor
            pass

    def check(self) -> None:
        """Raise BrokenPipeError, as a write would, if the reader has closed the pipe."""
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in self._poll.poll(0)):
            raise BrokenPipeError
