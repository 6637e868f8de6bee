"""Ending of child processes: a signal, a grace period, then SIGKILL."""

from __future__ import annotations

import subprocess
from signal import Signals
from typing import Any


def end_process(process: subprocess.Popen[Any], number: Signals, timeout_s: float) -> None:
    """Send a signal to a child process and wait for its exit. Do nothing if it has exited.

    Args:
        process: The child process.
        number: Signal to send.
        timeout_s: Seconds to wait before the process is killed.
    """
    if process.poll() is None:
        process.send_signal(number)
    wait_or_kill(process, timeout_s)


def wait_or_kill(process: subprocess.Popen[Any], timeout_s: float) -> None:
    """Wait until a child process has exited, and kill it if it does not exit in time.

    Args:
        process: The child process, which has been asked to exit.
        timeout_s: Seconds to wait.
    """
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
