"""The lock that allows one broker per data directory.

The broker locks the `.lock` file of each directory. The operating system releases the lock when the
process ends, even if it is killed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from typing import Protocol

from ottla.base.errors import UserError

LOCK_FILE = ".lock"


class Lock(Protocol):
    def acquire(self, paths: Iterable[str]) -> None: ...

    def release(self) -> None: ...

    @property
    def identity(self) -> str:
        """Name of the locked directories. No copy of them and no other directory on this machine
        has the same name while the machine is up."""


class DataLock:
    """File locks (`flock`) on the data directories."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def acquire(self, paths: Iterable[str]) -> None:
        """Create the directories if needed and lock each.

        Raises:
            UserError: A directory cannot be written to, or another broker has locked it.
        """
        for path in paths:
            try:
                os.makedirs(path, exist_ok=True)
                fd = os.open(f"{path}/{LOCK_FILE}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise UserError(
                    f"The data directory {path} cannot be written to ({error.strerror}); "
                    "choose another with log.dirs or --data-dir."
                ) from None
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
                raise UserError(
                    f"The data directory {path} is in use by another broker; stop that one, or "
                    "choose another directory with log.dirs or --data-dir."
                ) from None
            self._held.append(fd)

    @property
    def identity(self) -> str:
        found = map(os.fstat, self._held)
        return ",".join(f"{each.st_dev}:{each.st_ino}" for each in found)

    def release(self) -> None:
        while self._held:
            os.close(self._held.pop())
