"""Files and directories that only their owner can read.

A file is written under another name in its directory and then renamed into place, so that a reader
sees the old content or the new one, and a crash leaves no half of a key behind.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ottla.base.errors import UserError

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def make_private_directory(directory: Path) -> None:
    """Create a directory, and its parents, unless it exists.

    A directory that exists is closed to other users if it is empty. Otherwise it keeps its mode,
    because other programs may need its other files; the files that are written here are private
    anyway.

    Raises:
        UserError: The directory cannot be created or changed.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        if not any(directory.iterdir()):
            directory.chmod(DIRECTORY_MODE)
    except OSError as error:
        raise UserError(f"Cannot use the directory {directory}: {_reason(error)}.") from None


def write_private(path: Path, content: bytes | str) -> None:
    """Write a file that only its owner can read, replacing an older one.

    Raises:
        UserError: The file cannot be written.
    """
    with prepared(path, content):
        pass


@contextlib.contextmanager
def prepared(path: Path, content: bytes | str) -> Iterator[None]:
    """Write a file under another name, and rename it into place if the block succeeds.

    This makes sure that a new password can be stored before the cluster learns it.

    Raises:
        UserError: The file cannot be written.
    """
    temporary = _write_beside(path, content)
    try:
        yield
        try:
            os.replace(temporary, path)
            _sync_directory(path.parent)
        except OSError as error:
            raise UserError(f"Cannot write {path}: {_reason(error)}.") from None
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read_private(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"Cannot read {path}: {_reason(error)}.") from None


def _write_beside(path: Path, content: bytes | str) -> str:
    data = content.encode() if isinstance(content, str) else content
    try:
        # mkstemp creates the file with FILE_MODE, whatever the umask is.
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(f"Cannot write {path}: {_reason(error)}.") from None
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        os.unlink(temporary)
        raise UserError(f"Cannot write {path}: {_reason(error)}.") from None
    return temporary


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    return (error.strerror or "unknown error").lower()
