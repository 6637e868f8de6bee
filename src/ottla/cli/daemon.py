"""Leaving the terminal: the classic two forks.

The first fork lets the shell go on, the new session loses the terminal, and the second fork makes
sure that none can be taken again. It must happen while the process has one thread and no event
loop."""

from __future__ import annotations

import os
import sys

from ottla.base.errors import UserError
from ottla.cli.paths import daemon_output_file


def go_to_background() -> None:
    """Returns in the background process only; the one in the foreground ends with success."""
    output = _open_output(daemon_output_file())
    _end_parent_of_fork()
    os.setsid()
    _end_parent_of_fork()
    null = os.open(os.devnull, os.O_RDONLY)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(null)
    os.close(output)


def _open_output(path: str) -> int:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise UserError(f"Cannot write the broker's output to {path}: {reason}.") from error


def _end_parent_of_fork() -> None:
    if os.fork() > 0:
        # Not sys.exit: what the parent would do on its way out is the child's to do now.
        os._exit(0)
