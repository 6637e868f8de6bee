"""Detaching from the terminal with the classic double fork.

The first fork returns control to the shell, setsid() detaches from the terminal, and the second
fork prevents the process from acquiring another one. Call it before the process starts threads or
an event loop."""

from __future__ import annotations

import os
import sys

from ottla.base.errors import UserError
from ottla.cli.paths import daemon_output_file


def go_to_background() -> None:
    """Continue in a background process; the foreground process exits with code 0."""
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
        raise UserError(
            f"Cannot write the broker's output to {path}: {reason}. Set LOG_DIR to a writable "
            "directory."
        ) from error


def _end_parent_of_fork() -> None:
    if os.fork() > 0:
        # os._exit skips exit handlers and buffered output, which now belong to the child.
        os._exit(0)
