"""`--pid-file`: a file with the process ID of a running broker.

The broker keeps the file open and locked while it runs, and removes it when it stops. A killed
broker leaves a stale file behind, which no process has open and which the next start overwrites.
`kafka-server-stop --pid-file` looks for the process that has the file open and ignores the number
in it, because the operating system may have reused that process ID."""

from __future__ import annotations

import fcntl
import os
from types import TracebackType
from typing import Self

from ottla.base.errors import UserError


class PidFile:
    """Context manager for a locked file that holds the ID of this process."""

    def __init__(self, path: str) -> None:
        """Open and lock the file. The lock outlives a fork into the background.

        Raises:
            UserError: The file cannot be written, or belongs to another running broker.
        """
        self._path = os.path.abspath(path)
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            reason = (error.strerror or "unknown reason").lower()
            raise UserError(f"Cannot write the pid file {path}: {reason}.") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise UserError(
                f"The pid file {path} belongs to another running broker. Stop that broker, or "
                f"choose another file with --pid-file."
            ) from None

    def __enter__(self) -> Self:
        """Write the ID of this process."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the file."""
        try:
            # Another file may exist under this name, for instance after this one was removed.
            if os.path.samestat(os.fstat(self._fd), os.stat(self._path)):
                os.unlink(self._path)
        except OSError:  # already removed
            pass
        finally:
            os.close(self._fd)
