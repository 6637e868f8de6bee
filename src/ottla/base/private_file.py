"""Files with secrets, which only their owner can read."""

from __future__ import annotations

import os
from pathlib import Path

PRIVATE_MODE = 0o600


def write_private(path: str | os.PathLike[str], text: str) -> None:
    """Write a file that only its owner can read, and replace an existing one atomically.

    Args:
        path: The file.
        text: Its contents.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = f"{os.fspath(path)}.tmp"
    # An existing temporary file may have other permissions.
    Path(temporary).unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
