"""A small file that is replaced as a whole."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Whole or not at all, also after a power cut."""
    made = path.with_name(f"{path.name}.new")
    with open(made, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(made, path)


def lasting_id(path: Path) -> str:
    """A random id that is made once and kept in a file. A crash leaves no half of one: two tasks
    with the same empty id would take each other's state for their own."""
    if not path.exists():
        replace_file(path, uuid.uuid4().hex.encode())
    return path.read_text()
