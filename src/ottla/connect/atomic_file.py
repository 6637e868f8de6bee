"""Atomic replacement of small files."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a crash or power failure leaves either the old or the new content."""
    made = path.with_name(f"{path.name}.new")
    with open(made, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(made, path)


def lasting_id(path: Path) -> str:
    """Return the ID stored in a file, after creating a random one if the file does not exist.

    The write is atomic: two tasks that both read an empty ID after a crash would take each other's
    state for their own.
    """
    if not path.exists():
        replace_file(path, uuid.uuid4().hex.encode())
    return path.read_text()
